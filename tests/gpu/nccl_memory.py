"""What NCCL holds of a device for one communicator, by what it is used for and by NCCL's settings: a table.

    python nccl_memory.py [--ranks N] [--only NAME]… [--out DIR]

Each row is a job of its own under `shardledger run`: communicators of all ranks that gather, reduce-scatter and all-reduce
64 MiB, as FSDP does. Written are the ledger's communicator.device_bytes (the most of all ranks) of each communicator in the
order of its first use, and by how much cudaMemGetInfo's used bytes grew from before the first to after the last call, less
what PyTorch reserved meanwhile: of one process on each device, so both have to agree but for the driver's own. Needs N GPUs.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARDLEDGER = ROOT / "build" / "release" / "bin" / "shardledger"
MIB = 1 << 20

# name: (communicators, calls of each, environment)
CONFIGURATIONS = {
    "default": (1, "agr", {}),
    "all-gather and reduce-scatter": (1, "gr", {}),
    "all-reduce alone": (1, "a", {}),
    "2 communicators": (2, "agr", {}),
    "4 communicators": (4, "agr", {}),
    "NCCL_ALGO=Ring": (1, "agr", {"NCCL_ALGO": "Ring"}),
    "NCCL_ALGO=allreduce:tree": (1, "agr", {"NCCL_ALGO": "allreduce:tree"}),
    "NCCL_PROTO=Simple": (1, "agr", {"NCCL_PROTO": "Simple"}),
    "NCCL_BUFFSIZE=1 MiB": (1, "agr", {"NCCL_BUFFSIZE": str(MIB)}),
    "NCCL_BUFFSIZE=8 MiB": (1, "agr", {"NCCL_BUFFSIZE": str(8 * MIB)}),
    "NCCL_MAX_NCHANNELS=2": (1, "agr", {"NCCL_MAX_NCHANNELS": "2"}),
    "NCCL_MAX_NCHANNELS=8": (1, "agr", {"NCCL_MAX_NCHANNELS": "8"}),
    "NCCL_CUMEM_ENABLE=0": (1, "agr", {"NCCL_CUMEM_ENABLE": "0"}),
}


def job(count, calls):
    import torch
    import torch.distributed as dist

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    whole = torch.ones(32 * MIB, dtype=torch.bfloat16, device="cuda")
    x = torch.ones(whole.numel() // dist.get_world_size(), dtype=whole.dtype, device="cuda")
    torch.cuda.synchronize()

    def others():
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    before = others()
    for group in [dist.group.WORLD] + [dist.new_group() for _ in range(count - 1)]:
        for _ in range(3):
            if "g" in calls:
                dist.all_gather_into_tensor(whole, x, group=group)
            if "r" in calls:
                dist.reduce_scatter_tensor(x, whole, group=group)
            if "a" in calls:
                dist.all_reduce(x, group=group)
    torch.cuda.synchronize()
    grown = torch.tensor([others() - before], device="cuda")
    dist.all_reduce(grown, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(f"grown {grown.item()}", flush=True)
    dist.destroy_process_group()


def measure(name, ranks, out):
    count, calls, environment = CONFIGURATIONS[name]
    directory = out / name.replace(" ", "-").replace("=", "-").replace(":", "-")
    done = subprocess.run([SHARDLEDGER, "run", "-o", directory, "--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks),
                           "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", __file__, "--job", str(count), calls],
                          env={**os.environ, **environment}, text=True, capture_output=True, timeout=240)
    grown = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("grown ")]
    if done.returncode or len(grown) != 1:
        return name, None, done.stdout[-2000:] + done.stderr[-2000:]
    asked = subprocess.run([SHARDLEDGER, "query", "--json", "SELECT max(device_bytes) AS bytes FROM communicator "
                            "GROUP BY comm ORDER BY min(start_ns)", directory], text=True, capture_output=True, check=True)
    return name, json.loads(asked.stdout), grown[0]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--only", action="append", choices=CONFIGURATIONS)
    p.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "nccl-memory")
    p.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.job:
        return job(int(a.job[0]), a.job[1])
    failed = False
    names = a.only or list(CONFIGURATIONS)
    for name in names:  # one at a time: others' memory would count as NCCL's
        name, rows, grown = measure(name, a.ranks, a.out)
        failed |= rows is None
        if rows is None:
            print(f"{name}: failed\n{grown}", flush=True)
        else:
            held = " + ".join(f"{row['bytes'] / MIB:.0f}" for row in rows)
            print(f"| {name} | {held} | {grown / MIB:.0f} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
