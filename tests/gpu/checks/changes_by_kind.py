"""What 'shardledger whatif' says of each change and each kind of job: how its figures stand, or why it is refused."""

import json
import shutil
import tempfile
from pathlib import Path

from .harness import ROOT, shardledger

DATA = ROOT / "tests" / "data"
QUANTITIES = ("requested", "allocated", "reserved")
KINDS = {
    "one device": "predictions/one", "DDP": "matrix/tracked-ddp", "FSDP1": "life/fsdp1", "FSDP2": "predictions/ranks4",
    "FSDP2, mixed precision": "predictions/mixed4", "HSDP": "predictions/hsdp2x4", "FSDP2, one rank": "predictions/ranks1",
}  # fmt: skip
CHANGES = (
    "--alloc-conf expandable_segments:True", "--memory-limit 4GiB", "--optimizer sgd", "--optimizer host", "--offload-optimizer",
    "--optimizer-in-backward", "--no-workspaces", "--recompute all", "--recompute none", "--loss-chunks 4", "--accumulate 2", "--accumulate 2 --no-sync",
    "--reshard off", "--reshard on", "--reshard 2", "--mixed-precision bf16", "--world-size 8", "--world-size 1",
)  # fmt: skip
# What a change is the way back of has to be there.
OTHERS = {
    ("--recompute none", "one device"): "predictions/one-recompute", ("--recompute none", "FSDP2"): "predictions/ranks4-recompute",
    ("--reshard on", "FSDP2"): "predictions/ranks4-keep",
}  # fmt: skip


def standings(run, change):
    """({quantity: how it stands}, why it is refused)."""
    peaks = json.loads(shardledger("whatif", run, *change.split(), "--rank", "0", "--json"))["peaks"]
    return {row["figure"]: row["standing"] for row in peaks}, peaks[0]["reason"] if peaks[0]["standing"] == "refused" else ""


def said():
    """{(change, kind): (standings, reason)}."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for kind, usual in KINDS.items():
            for change in CHANGES:
                run = OTHERS.get((change, kind), usual)
                copy = Path(scratch) / run.replace("/", "-")
                if not copy.exists():
                    shutil.copytree(DATA / run, copy)
                found[change, kind] = standings(copy, change)
    return found


# ---- as docs/prediction.md shows them ----


def words(standing, number):
    """'exact'; 'bound, reserved estimate'; '(3)': refused."""
    if number:
        return f"({number})"
    figures = [standing[quantity] for quantity in QUANTITIES]
    if len(set(figures)) == 1:
        return figures[0]
    if figures[0] == figures[1]:
        return f"{figures[0]}, reserved {figures[2]}"
    return f"{figures[0]}, else {figures[1]}" if figures[1] == figures[2] else ", ".join(figures)


def tables():
    """The rows of changes by kinds, and those of reasons by number."""
    found, numbers = said(), {}
    rows = []
    for change in CHANGES:
        cells = []
        for kind in KINDS:
            standing, reason = found[change, kind]
            cells.append(words(standing, numbers.setdefault(reason, len(numbers) + 1) if reason else 0))
        rows.append((f"`{change}`", *cells))
    return rows, [(f"({number})", reason) for reason, number in numbers.items()]
