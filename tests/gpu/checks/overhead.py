"""What recording costs a training step: paired blocks of steps (../overhead.py), with an interval."""

import json
import random
import statistics

from .harness import Result

LIMIT = 0.01
RESAMPLES = 4000


def interval(values, statistic=statistics.median, resamples=RESAMPLES, seed=1):
    """The 95% bootstrap interval of a statistic."""
    draw = random.Random(seed)
    drawn = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(resamples))
    return drawn[int(0.025 * resamples)], drawn[int(0.975 * resamples) - 1]


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
