"""ShardLedger's trackers against PyTorch's and against PyTorch's allocator, on one GPU.

    SHARDLEDGER_MODULES=all shardledger run -o DIR -- \\
        python tests/gpu/trackers/trackers.py [--group nccl|fake] [--world N] [--time] [--json FILE] [JOB …]

Each job runs twice in one process, under PyTorch's tracker and under ours. Totals, now, at the highest point and at modules'
forwards, are held against the allocator's own count, owners against PyTorch's tracker, without a tolerance. Exits 1 where one
differs, or where ShardLedger's tracker handed over to PyTorch's. Without a GPU, tests/python/trackers_test.py does the same.

--group nccl is a real group of one rank; --group fake pretends to be rank 0 of --world ranks: collectives move nothing, memory
is as in a real job. --time also measures steps without a tracker and under each, and what a question takes. As pytest:
`SHARDLEDGER_MODULES=all shardledger run -- python -m pytest tests/gpu/trackers/trackers_on_gpu_test.py`.
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import statistics
import sys
import time

os.environ.setdefault("SHARDLEDGER_MODULES", "all")  # PyTorch's MemTracker follows all of them

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from tracker_compared import compare, table  # noqa: E402
from tracker_jobs import JOBS  # noqa: E402
from tracker_observed import Allocator, observe  # noqa: E402


def begin_group(group, world, device):
    if dist.is_initialized():
        return
    if group == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1, device_id=device)


def both_trackers():
    """(PyTorch's, ours), each (MemTracker, FSDPMemTracker)."""
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker as TorchFSDP
    from torch.distributed._tools.mem_tracker import MemTracker as TorchModule

    from shardledger import FSDPMemTracker, MemTracker

    return (TorchModule, TorchFSDP), (MemTracker, FSDPMemTracker)


def check(name, device):
    """(rows, the class that answered in our tracker's place)."""
    kind, make = JOBS[name]
    torchs, ours = both_trackers()
    theirs = observe(make, kind, torchs, device, Allocator(device))
    mine = observe(make, kind, ours, device, Allocator(device))
    return compare(kind, mine, theirs), mine.kind


def step_times(name, device, steps=30):
    """{tracker: median ms of a step}, and the ms of a question of ours after these steps."""
    kind, make = JOBS[name]
    torchs, ours = both_trackers()
    times = {}
    for label, classes in (("none", None), ("PyTorch's", torchs), ("ours", ours)):
        made = make(device)
        tracker = contextlib.nullcontext() if classes is None else classes[1](made.model, made.optimizer) if kind == "fsdp" else classes[0]()
        taken = []
        with tracker:
            for _ in range(steps):
                torch.cuda.synchronize()
                began = time.perf_counter()
                made.forward().backward()
                made.optimizer.step()
                made.optimizer.zero_grad()
                torch.cuda.synchronize()
                taken.append((time.perf_counter() - began) * 1e3)
                if label == "PyTorch's":
                    tracker.reset_mod_stats()  # it takes one call of the root between two
        times[label] = statistics.median(taken[5:])
    began = time.perf_counter()
    tracker.get_tracker_snapshot("peak")
    times["a question"] = (time.perf_counter() - began) * 1e3
    return times


def main():
    p = argparse.ArgumentParser()
    p.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(JOBS))
    p.add_argument("--group", choices=("nccl", "fake"), default="nccl")
    p.add_argument("--world", type=int, default=2)
    p.add_argument("--time", action="store_true")
    p.add_argument("--json")
    a = p.parse_args()
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    torch.cuda.init()
    begin_group(a.group, a.world, device)
    failed, results = [], {}
    for name in a.jobs or JOBS:
        began = time.perf_counter()
        rows, answered = check(name, device)
        bad = [row for row in rows if not row.passed]
        if not answered.startswith("shardledger."):
            bad.append(f"{answered} answered: is the job recorded?")
        failed += [name] * bool(bad)
        results[name] = {"seconds": time.perf_counter() - began, "answered": answered, "failed": [str(row) for row in bad],
                         "rows": [[row.check, row.where, row.ours, row.truth] for row in rows]}
        if a.time:
            results[name]["ms"] = step_times(name, device)
            print(f"{name:24} " + ", ".join(f"{label} {ms:.2f} ms" for label, ms in results[name]["ms"].items()))
        print("\n".join(table(name, rows)), f"\n{name:24} {'FAILED' if bad else 'passed'}, answered by {answered}", flush=True)
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(results, indent=1))
    if dist.is_initialized():
        dist.destroy_process_group()
    print(f"{len(results) - len(failed)} of {len(results)} jobs passed" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
