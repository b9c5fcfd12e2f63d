"""Completeness: how much of each period's peak no rule covers, and whether the categories add up to the peak."""

from .harness import Result

UNATTRIBUTED_LIMIT = 0.001


def check_attribution(name, ledger):
    peaks, places = {}, {}
    for rank, period, kind, step, allocated in ledger.execute(
        "SELECT rank, period, kind, step, peak_allocated_bytes FROM period WHERE peak_allocated_bytes > 0"
    ):
        peaks[rank, period] = allocated
        places[rank, period] = kind if step is None else f"{kind} {step}"
    totals, unattributed = {}, {}
    for rank, period, category, size in ledger.execute("SELECT rank, period, category, bytes FROM category_at_peak"):
        totals[rank, period] = totals.get((rank, period), 0) + size
        if category == "unattributed":
            unattributed[rank, period] = size
    shares = {key: unattributed.get(key, 0) / total for key, total in totals.items() if total}
    unbalanced = sorted(key for key in {*peaks, *totals} if totals.get(key, 0) != peaks.get(key, 0))
    worst = max(shares.values(), default=1.0)
    figure = f"at most {100 * worst:.3f}% of a peak in {len(shares)} periods"
    if unbalanced:
        first = unbalanced[0]
        figure += (
            f"; categories don't add up to the peak in {len(unbalanced)} of them"
            f" (first: rank {first[0]} period {first[1]} {places.get(first)}, {totals.get(first)} of {peaks.get(first)})"
        )
    passed = bool(shares) and worst < UNATTRIBUTED_LIMIT and not unbalanced
    shares = [{"rank": rank, "period": period, "place": places.get((rank, period)), "share": share}
              for (rank, period), share in sorted(shares.items())]
    return Result(f"{name}: unattributed", passed, figure, {"shares": shares, "unbalanced": unbalanced})
