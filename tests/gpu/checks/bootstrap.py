"""Intervals for statistics of few, noisy values."""

import random
import statistics

RESAMPLES = 4000


def interval(values, statistic=statistics.median, resamples=RESAMPLES, seed=1):
    """The 95% bootstrap interval of a statistic."""
    draw = random.Random(seed)
    drawn = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(resamples))
    return drawn[int(0.025 * resamples)], drawn[int(0.975 * resamples) - 1]
