"""What the same training steps take on disk: ShardLedger's log and ledger, and what PyTorch's own tools write.

    python tests/gpu/file_sizes.py [--steps 20] [--out DIR]

Two GPUs, about a minute. The job (training.py) runs twice: with ShardLedger alone, then with one tool of PyTorch after
the other, each over as many steps. Prints a table of the bytes that one rank writes; a JSON of it goes to --out.
"""

import argparse
import contextlib
import json
import os
import sqlite3
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def write_snapshot(training, steps, path):
    """torch.cuda.memory._record_memory_history and _dump_snapshot, for memory_viz."""
    import torch

    torch.cuda.memory._record_memory_history(max_entries=10_000_000)
    train(training, steps)
    torch.cuda.memory._dump_snapshot(str(path))
    torch.cuda.memory._record_memory_history(None)


def write_profile(**options):
    """torch.profiler's trace, as the TensorBoard plugin and HTA read it."""

    def write(training, steps, path):
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True, **options) as profiler:
            train(training, steps)
        profiler.export_chrome_trace(str(path))

    return write


TOOLS = {  # what: (the file's name, the function that writes it)
    "memory snapshot": ("snapshot.pickle", write_snapshot),
    "torch.profiler profile_memory, .json": ("trace.json", write_profile()),
    "the same, .json.gz": ("trace.json.gz", write_profile()),
    "torch.profiler memory timeline, .json.gz": ("stacks.json.gz", write_profile(record_shapes=True, with_stack=True)),
}


def train(training, steps):
    import torch

    for _ in range(steps):
        training.step()
    torch.cuda.synchronize()


def job(steps, out, with_tools):
    from training import Training

    training = Training()
    if with_tools:
        train(training, 3)
        for name, write in TOOLS.values():
            unfinished = out / f"unfinished.rank{training.rank}.{name}"
            write(training, steps, unfinished)
            unfinished.rename(out / f"rank{training.rank}.{name}")
    else:
        train(training, steps)
    training.close()


def size(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else path.stat().st_size


def events(ledger):
    """That rank 0 recorded in the whole run."""
    with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
        return db.execute("SELECT events FROM rank WHERE rank = 0").fetchone()[0]


def measure(steps, out):
    """Yields (what, bytes of rank 0); None for a tool that did not get to its end."""
    from checks.harness import CheckFailed, Harness, shardledger

    with tempfile.TemporaryDirectory(prefix="shardledger-sizes-") as work:
        harness = Harness(out, Path(work), 2)
        run = harness.train("file-sizes", "file_sizes.py", ["--job", "--steps", steps])
        sizes = {}
        for keep in ("changes", "all"):
            ledger = Path(work) / f"{keep}.sqlite"
            shardledger("ingest", run.directory, "--keep", keep, "-o", ledger)
            sizes[keep] = ledger.stat().st_size // 2
        yield f"ShardLedger's log ({events(ledger):,} events)", size(run.processes()[0])
        for keep, total in sizes.items():
            yield f"ShardLedger's ledger, --keep {keep}", total
        try:
            options = ["--job", "--with-tools", "--steps", steps, "--out", work]
            harness.train("file-sizes-tools", "file_sizes.py", options, timeout=200, attach=None)
        except CheckFailed as problem:
            print(f"file_sizes.py: {problem}", file=sys.stderr)
        for what, (name, _) in TOOLS.items():
            path = Path(work) / f"rank0.{name}"
            yield what, size(path) if path.exists() else None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or "."))
    p.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--with-tools", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.job:
        return job(a.steps, a.out, a.with_tools)
    a.out.mkdir(parents=True, exist_ok=True)
    sizes = {}
    for what, total in measure(a.steps, a.out.resolve()):
        sizes[what] = total
        (a.out / "file-sizes.json").write_text(json.dumps({"steps": a.steps, "bytes": sizes}, indent=1) + "\n")
        words = f"{total:>12,} bytes {total / a.steps:>12,.0f} a step" if total is not None else "not written"
        print(f"{what:<48} {words}", flush=True)
    return 1 if None in sizes.values() else 0


if __name__ == "__main__":
    sys.exit(main())
