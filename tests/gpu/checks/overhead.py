"""What recording costs a training step: paired blocks of steps (../overhead.py), with an interval."""

import json
import statistics

from .bootstrap import interval
from .harness import Result

LIMIT = 0.01


def check_overhead(harness):
    out = harness.out / "overhead.jsonl"
    harness.train("overhead", "overhead.py", ["--out", out], timeout=180)
    pairs = [json.loads(line) for line in out.read_text().splitlines()]
    relative = [pair["on_ms"] / pair["off_ms"] - 1 for pair in pairs]
    median, (low, high) = statistics.median(relative), interval(relative)
    off = statistics.median(pair["off_ms"] for pair in pairs)
    figure = (
        f"{100 * median:+.2f}% of a {off:.1f} ms step, 95% interval {100 * low:+.2f} to {100 * high:+.2f}%, "
        f"{len(pairs)} pairs"
    )
    # A failure is an overhead that the interval places above the limit; a wide interval is shown, not judged.
    yield Result("overhead", low <= LIMIT, figure, {"median": median, "low": low, "high": high, "pairs": pairs})
