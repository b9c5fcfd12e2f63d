"""Truth by category: the fsdp_snapshot view against PyTorch's FSDPMemTracker, run on the job's last step."""

import json

from .harness import MIB, Result

# A row is near when it is within 1% or 1 MiB. The tracker adds up requests rounded to 512 bytes and sees no operator
# workspaces; the ledger counts the blocks that the allocator handed out. docs/categories.md lists the differences.
RELATIVE, ABSOLUTE = 0.01, MIB


def read_tracker(prefix):
    """{(rank, fqn, call, state, category): bytes} of the files <prefix>.tracker.rank<R>."""
    rows = {}
    for path in sorted(prefix.parent.glob(f"{prefix.name}.tracker.rank*")):
        rank = int(path.name.rpartition("rank")[2])
        for row in json.loads(path.read_text()):
            rows[rank, row["fqn"], row["call"], row["state"], row["category"]] = row["bytes"]
    return rows


def read_snapshots(ledger):
    """The same of each rank's last step."""
    query = """SELECT rank, fqn, call, state, category, bytes FROM fsdp_snapshot AS s
               WHERE step = (SELECT max(step) FROM step WHERE step.rank = s.rank)"""
    return {tuple(key): size for *key, size in ledger.execute(query)}


def compare(tracker, snapshots):
    """(rows as (difference, key, tracker bytes, ledger bytes), worst first; the (rank, fqn, call, state) the ledger
    lacks). A category without a row in a state that the ledger has is 0 bytes."""
    states = {key[:4] for key in snapshots}
    missing = sorted({key[:4] for key in tracker} - states)
    rows = [
        (abs(snapshots.get(key, 0) - size), key, size, snapshots.get(key, 0))
        for key, size in tracker.items()
        if key[:4] in states
    ]
    return sorted(rows, key=lambda row: (-row[0], row[1])), missing


def check_tracker(name, prefix, ledger):
    tracker = read_tracker(prefix)
    snapshots = read_snapshots(ledger)
    rows, missing = compare(tracker, snapshots)
    untold = sorted({key[0] for key in snapshots} - {key[0] for key in tracker})
    near = sum(difference <= max(RELATIVE * size, ABSOLUTE) for difference, _, size, _ in rows)
    figure = f"{near} of {len(tracker)} rows within 1% or 1 MiB"
    if rows and rows[0][0]:
        difference, (rank, fqn, _, state, category), *_ = rows[0]
        figure += f"; largest {difference / MIB:.2f} MiB (rank {rank} {fqn} {state} {category})"
    if missing:
        figure += f"; {len(missing)} module states missing (first: {missing[0]})"
    if untold:
        figure += f"; the tracker's rows of rank {untold[0]} are missing"
    passed = bool(tracker) and not untold and not missing and near == len(tracker)
    by_category = {}
    for difference, key, _, _ in rows:
        by_category[key[4]] = max(by_category.get(key[4], 0), difference)
    details = {"largest_by_category": by_category, "worst": rows[:40], "missing": missing[:40]}
    return Result(f"{name}: tracker", passed, figure, details)
