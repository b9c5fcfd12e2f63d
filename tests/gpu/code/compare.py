"""The ledger's lines and operators against what PyTorch says of the same steps (job.py).

    python compare.py RUN TRUTH        RUN: a run directory or a ledger with all rows

Prints a line a check, and exits 1 when one fails.
"""

import argparse
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COMMAND = Path(os.environ.get("SHARDLEDGER_BUILD_DIR") or ROOT / "build" / "release").resolve() / "bin" / "shardledger"
WITH_HISTORY, WITH_PROFILER = 7, 8
SAME = 0.999  # of the bytes
FACTORIES = "aten::empty", "aten::resize_", "aten::new_empty"


def ledger_of(run, scratch):
    path = Path(scratch) / "ledger.sqlite"
    subprocess.run([COMMAND, "ingest", run, "-o", path, "--keep", "all"], check=True, capture_output=True)
    return sqlite3.connect(path)


def is_users(file):
    """As docs/code.md says: neither installed, nor Python's, nor made by torch.compile; nor the companion's."""
    return not (file.startswith("<frozen") or any(part in file for part in (
        "/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", "torchinductor_", "/python/shardledger/")))


def users_line(frames):
    """(file's name, line) of the innermost frame of the user's; None without one."""
    return next(((os.path.basename(file), line) for file, line, _ in frames if is_users(file)), None)


def operator_of(names):
    """The innermost that allocates for itself; ranges of other kinds are none."""
    operators = [name for name in names if "::" in name and not name.startswith(("FSDP::", "autograd::", "shardledger")) or name.endswith("Backward")
                 or re.search(r"Backward\d+$", name) and not name.startswith("autograd::")]
    for name in operators:
        if not name.startswith(FACTORIES):
            return name
    return operators[0] if operators else None


def allocations(db, step):
    """[(id, asked for, block, file, line, operator, stack_of, alive at the step's peak)] in order."""
    return db.execute(
        "SELECT a.id, a.requested_bytes, a.bytes, l.file, l.line, l.operator_name, l.stack_of, a.alloc_ns <= p.peak_ns AND"
        " coalesce(a.free_ns, p.peak_ns + 1) > p.peak_ns FROM allocation a JOIN step p ON p.rank = a.rank AND p.step = a.step"
        " LEFT JOIN site_line l ON l.site_id = a.site_id WHERE a.step = ? ORDER BY a.id", (step,)).fetchall()


def check_lines(db, truth):
    """Each allocation of the step in which PyTorch took stacks, where it has a frame of the user's."""
    rows = allocations(db, WITH_HISTORY)
    if [row[1] for row in rows] != [size for size, _ in truth]:
        return False, f"other allocations: {len(rows)} rows, PyTorch {len(truth)}"
    counted = {"all": [0, 0], "at the peak": [0, 0]}
    wrong = []
    for row, (size, frames) in zip(rows, truth):
        line = users_line(frames)
        if line is None:
            continue  # autograd's threads have no Python frames there
        same = row[3] is not None and (os.path.basename(row[3]), row[4]) == line
        for name in ("all", "at the peak")[:1 + row[7]]:
            counted[name][0] += size * same
            counted[name][1] += size
        if not same:
            wrong.append(f"{row[3]}:{row[4]} for {line[0]}:{line[1]}")
    shares = {name: same / max(size, 1) for name, (same, size) in counted.items()}
    text = "; ".join(f"{name} {share:.3%} of {counted[name][1]:,} B" for name, share in shares.items())
    return all(share >= SAME for share in shares.values()) and counted["all"][1] > 0, text + (f"; {wrong[:3]}" if wrong else "")


def check_backward(db, truth):
    """What PyTorch has no frame of the user's for, since autograd's threads have none: it has the line of the forward, or the
    frames of the hook that made it."""
    rows = allocations(db, WITH_HISTORY)
    without = [row for row, (_, frames) in zip(rows, truth) if users_line(frames) is None]
    named = [row for row in without if row[3] is not None and is_users(row[3])]
    share = sum(row[1] for row in named) / max(1, sum(row[1] for row in without))
    return bool(named) and all(row[3] is not None for row in without), f"{len(named)} of {len(without)} allocations without a frame in PyTorch's history, {share:.1%} of their bytes"


def check_operators(db, truth):
    """Bytes by operator in the step that torch.profiler followed."""
    ours, theirs = {}, {}
    for row in allocations(db, WITH_PROFILER):
        ours[row[5]] = ours.get(row[5], 0) + row[2]
    for size, names in truth:
        name = operator_of(names)
        theirs[name] = theirs.get(name, 0) + size
    whole = max(sum(ours.values()), sum(theirs.values()))
    same = sum(min(size, ours.get(name, 0)) for name, size in theirs.items())
    differ = {name: (ours.get(name, 0), theirs.get(name, 0)) for name in {*ours, *theirs} if ours.get(name, 0) != theirs.get(name, 0)}
    return same >= SAME * whole > 0, f"{same / max(whole, 1):.3%} of {whole:,} B; differ: {dict(list(differ.items())[:4])}"


def check_refused(db, truth):
    row = db.execute("SELECT l.file, l.line FROM oom o JOIN site_line l ON l.site_id = o.site_id ORDER BY o.at_ns DESC LIMIT 1").fetchone()
    line = users_line(reversed(truth))
    return row is not None and (os.path.basename(row[0]), row[1]) == line, f"{row} for {line}"


CHECKS = {"lines": ("history", check_lines), "backward": ("history", check_backward), "operators": ("operators", check_operators),
          "refused": ("refused", check_refused)}


def compare(run, truth):
    """[(name, passed, figure)]."""
    said = json.loads(Path(truth).read_text())
    with tempfile.TemporaryDirectory() as scratch:
        db = ledger_of(run, scratch)
        try:
            return [(name, *check(db, said[key])) for name, (key, check) in CHECKS.items()]
        finally:
            db.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("truth", type=Path)
    options = parser.parse_args()
    results = compare(options.run, options.truth)
    for name, passed, figure in results:
        print(f"{'pass' if passed else 'FAIL'}  {name:10} {figure}")
    sys.exit(0 if all(passed for _, passed, _ in results) else 1)


if __name__ == "__main__":
    main()
