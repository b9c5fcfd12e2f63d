"""Completeness: how much of each step's peak no rule covers, and whether the categories add up to the peak."""

from .harness import Result

UNATTRIBUTED_LIMIT = 0.001


def check_attribution(name, ledger):
    peaks = dict(
        ((rank, step), allocated)
        for rank, step, allocated in ledger.execute("SELECT rank, step, peak_allocated_bytes FROM step")
    )
    totals, unattributed = {}, {}
    for rank, step, category, size in ledger.execute("SELECT rank, step, category, bytes FROM category_at_peak"):
        totals[rank, step] = totals.get((rank, step), 0) + size
        if category == "unattributed":
            unattributed[rank, step] = size
    shares = {key: unattributed.get(key, 0) / total for key, total in totals.items() if total}
    unbalanced = sorted(key for key, allocated in peaks.items() if totals.get(key) != allocated)
    worst = max(shares.values(), default=1.0)
    figure = f"at most {100 * worst:.3f}% of a step's peak in {len(shares)} steps"
    if unbalanced:
        rank, step = unbalanced[0]
        figure += (
            f"; categories don't add up to the peak in {len(unbalanced)} steps"
            f" (first: rank {rank} step {step}, {totals.get((rank, step))} of {peaks[rank, step]})"
        )
    passed = bool(shares) and worst < UNATTRIBUTED_LIMIT and not unbalanced
    shares = [{"rank": rank, "step": step, "share": share} for (rank, step), share in sorted(shares.items())]
    return Result(f"{name}: unattributed", passed, figure, {"shares": shares, "unbalanced": unbalanced})
