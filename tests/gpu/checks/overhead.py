"""What recording costs a training step: paired blocks of steps (../overhead.py), with an interval."""

import statistics

import overhead

from .bootstrap import interval
from .harness import Result

LIMIT = 0.01


def check_overhead(harness):
    out = harness.out / "overhead.jsonl"
    harness.train("overhead", "overhead.py", ["--out", out, "--rounds", "50"], timeout=180)
    pairs = overhead.read(out)
    for tool in dict.fromkeys(pair["tool"] for pair in pairs):
        own = [pair for pair in pairs if pair["tool"] == tool]
        each = overhead.differences(own)
        middle, (low, high) = overhead.middle(each), interval(each, overhead.middle)
        off = statistics.median(overhead.steps_of(own, "off_ms"))
        figure = (
            f"{tool}: {100 * middle:+.2f}% of a {off:.1f} ms step, 95% interval {100 * low:+.2f} to {100 * high:+.2f}%, "
            f"{len(own)} pairs"
        )
        # A failure is an overhead that the interval places above the limit; a wide interval is shown, not judged.
        yield Result(f"overhead: {tool}", low <= LIMIT, figure, {"middle": middle, "low": low, "high": high, "pairs": own})
