"""Without a compiler: the same job once by the bridge and once by PyTorch's memory history. The bytes at every step's peak must
be as PyTorch says, and nearly all of them of the category that the bridge gives."""

from .harness import MIB, Result, attempt, shardledger
from .reference import check_recorded
from .truth import check_exact, read_truth
from .variants import SMALL

SAME = 0.95  # of the bytes at a step's peak: the history has no threads, and times in whole microseconds


def check_history(harness):
    bridge = harness.train("history-bridge", "fsdp2_train.py", [*SMALL, "--truth", "truth"])
    history = harness.train("history", "fsdp2_train.py", [*SMALL, "--truth", "truth"], environment={"SHARDLEDGER_TORCH": "history"})
    first = shardledger("info", history.directory).splitlines()[0]
    yield Result("history: says that it is reduced", first.startswith("reduced: "), first)
    with bridge.ledger() as expected, history.ledger() as ledger:
        yield attempt("history: bytes", lambda: check_exact("history", read_truth(history.truth), ledger))
        yield attempt("history: categories", lambda: check_same("history: categories", expected, ledger))
        yield attempt(
            "history: recorded",
            lambda: check_recorded("history", ledger, len(history.processes()), harness.ranks, history.seconds),
        )


def at_peaks(ledger):
    """{(rank, step): {category: bytes}} of every step's peak."""
    steps = {}
    for rank, step, category, size in ledger.execute("SELECT rank, step, category, bytes FROM category_at_peak"):
        steps.setdefault((rank, step), {})[category] = size
    return steps


def check_same(name, expected, ledger):
    expected, found = at_peaks(expected), at_peaks(ledger)
    shares = {}
    for key, categories in expected.items():
        same = sum(min(size, found.get(key, {}).get(category, 0)) for category, size in categories.items())
        shares[key] = same / max(sum(categories.values()), sum(found.get(key, {}).values()), 1)
    if not shares:
        return Result(name, False, "there is no peak to compare")
    (rank, step), share = min(shares.items(), key=lambda item: item[1])
    before, after = expected[rank, step], found.get((rank, step), {})
    changes = {c: after.get(c, 0) - before.get(c, 0) for c in {*before, *after} if after.get(c, 0) != before.get(c, 0)}
    figure = f"of {len(shares)} steps' peaks at least {share:.1%} of the bytes have the same category"
    if changes:
        figure += f" (rank {rank} step {step}: " + ", ".join(
            f"{category} {size / MIB:+.1f} MiB" for category, size in sorted(changes.items(), key=lambda item: -abs(item[1]))[:4]
        ) + ")"
    return Result(name, share >= SAME and set(found) == set(expected), figure)
