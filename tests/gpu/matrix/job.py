"""Runs a list of jobs of the truth matrix one after the other in one process group.

    torchrun --nproc-per-node 2 job.py --jobs bf16,mixed --truth PREFIX [--device cpu]

Each job makes a model, takes a few steps and one under PyTorch's memory tracker, and is deleted before the next begins. A
job that fails does not stop the others. With --device cpu there are no CUDA statistics: only the code is tried.
"""

import argparse
import datetime
import gc
import os
import sys
import time
import traceback
import weakref
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matrix import sharded, unsharded  # noqa: E402, F401
from matrix.registry import JOBS, Skip  # noqa: E402
from matrix.run import Run, TrackerRefused  # noqa: E402
from matrix.truth import Truth  # noqa: E402


def run_job(name, run):
    """Returns what to write down: ("done", 1), or ("skipped" | "note" | "error", words)."""
    try:
        JOBS[name](run)
    except Skip as reason:
        return "skipped", str(reason)
    except TrackerRefused as reason:
        return "note", str(reason)
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        return "error", f"{type(error).__name__}: {error}".partition("\n")[0][:300]
    return "done", 1


PATIENCE = 1  # seconds that a job's modules may take to go


def modules():
    return [thing for thing in gc.get_objects() if issubclass(type(thing), nn.Module)]


def let_go(earlier):
    """
    Has a job's modules freed, all but the earlier ones (ids). A thread of autograd's keeps the last backward's callbacks, and by
    FSDP's the model, until it comes round to letting go: a collection before that finds the model held, and none comes after.
    """
    made = [weakref.ref(module) for module in modules() if id(module) not in earlier]
    deadline = time.monotonic() + PATIENCE
    gc.collect()
    while any(module() is not None for module in made):
        if time.monotonic() > deadline:
            names = sorted({type(module()).__name__ for module in made if module() is not None})
            print(f"modules are left of a job: {', '.join(names)}", file=sys.stderr, flush=True)
            break
        time.sleep(0.02)
        gc.collect()


def end_the_open_step(truth, device):
    """After a job that broke off within a step: a step of a model of its own ends it, so that the next job begins anew."""
    model = nn.Linear(8, 8, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    model(torch.ones(8, 8, device=device)).sum().backward()
    optimizer.step()
    truth.count_peaks()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--jobs", required=True, help="names, separated by commas")
    p.add_argument("--truth", required=True, metavar="PREFIX")
    p.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    p.add_argument("--no-tracker", action="store_true", help="no step under PyTorch's memory trackers")
    p.add_argument("--small", action="store_true", help="fewer layers and steps")
    p.add_argument("--memory", type=int, metavar="MIB", help="torch.cuda.set_per_process_memory_fraction")
    options = p.parse_args()
    rank = int(os.environ["RANK"])
    backend = "gloo"
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
        if options.memory:
            total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
            torch.cuda.set_per_process_memory_fraction((options.memory << 20) / total)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60))
    truth = Truth(options.truth, rank, options.device)
    for name in options.jobs.split(","):
        torch.manual_seed(1234)
        truth.begin_job(name)
        earlier = set(map(id, modules()))
        run = Run(truth, options.device, rank, dist.get_world_size(), not options.no_tracker, options.small)
        outcome = run_job(name, run)
        let_go(earlier)
        if outcome[0] in ("note", "error"):
            end_the_open_step(truth, options.device)
        if options.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        truth.say(*outcome)
        if outcome[0] == "note":
            truth.say("done", 1)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
