"""What NCCL holds of a device for one communicator, by its size, its use and NCCL's settings: a table, and its rows as JSON.

    python nccl_memory.py [--only NAME]… [--workers N] [--out DIR]

Each row is a job of its own under `shardledger run`: communicators of all ranks, each used for what the row says, 64 MiB and
4 KiB at a time. Written are the ledger's communicator.device_bytes (the most of all ranks) of each communicator in the order of
its first use. The first row runs alone and is held against cudaMemGetInfo: by how much used bytes grew from before the first
to after the last call, less what PyTorch reserved meanwhile.
Ranks of one host have a GPU each. More ranks than GPUs are more hosts: NCCL_HOSTID makes NCCL take them for that, and
they meet over sockets, whose buffers are the host's memory, as those of a network without GPUDirect RDMA are. Needs 2 GPUs.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
from pathlib import Path

from checks.harness import MIB, SHARDLEDGER

GPUS = 2
EACH = "grab"  # all-gather, reduce-scatter, all-reduce, broadcast
ONE_HOST = (1, GPUS)

# name: (hosts, GPUs a host), communicators, operations, environment
CONFIGURATIONS = {
    "default": (ONE_HOST, 1, EACH, {}),
    "unused": (ONE_HOST, 1, "", {}),
    "all-gather": (ONE_HOST, 1, "g", {}),
    "reduce-scatter": (ONE_HOST, 1, "r", {}),
    "all-gather, reduce-scatter": (ONE_HOST, 1, "gr", {}),
    "all-reduce": (ONE_HOST, 1, "a", {}),
    "broadcast": (ONE_HOST, 1, "b", {}),
    "all-to-all": (ONE_HOST, 1, "t", {}),
    "send and receive": (ONE_HOST, 1, "s", {}),
    "everything": (ONE_HOST, 1, EACH + "ts", {}),
    "2 communicators": (ONE_HOST, 2, EACH, {}),
    "4 communicators": (ONE_HOST, 4, EACH, {}),
    "NCCL_ALGO=Ring": (ONE_HOST, 1, EACH, {"NCCL_ALGO": "Ring"}),
    "NCCL_ALGO=allreduce:tree": (ONE_HOST, 1, EACH, {"NCCL_ALGO": "allreduce:tree"}),
    "NCCL_PROTO=Simple": (ONE_HOST, 1, EACH, {"NCCL_PROTO": "Simple"}),
    "NCCL_BUFFSIZE=1 MiB": (ONE_HOST, 1, EACH, {"NCCL_BUFFSIZE": str(MIB)}),
    "NCCL_BUFFSIZE=8 MiB": (ONE_HOST, 1, EACH, {"NCCL_BUFFSIZE": str(8 * MIB)}),
    "NCCL_MAX_NCHANNELS=2": (ONE_HOST, 1, EACH, {"NCCL_MAX_NCHANNELS": "2"}),
    "NCCL_MAX_NCHANNELS=8": (ONE_HOST, 1, EACH, {"NCCL_MAX_NCHANNELS": "8"}),
    "NCCL_MAX_CTAS=8": (ONE_HOST, 1, EACH, {"NCCL_MAX_CTAS": "8"}),
    "NCCL_CUMEM_ENABLE=0": (ONE_HOST, 1, EACH, {"NCCL_CUMEM_ENABLE": "0"}),
    "NCCL_P2P_DISABLE=1": (ONE_HOST, 1, EACH, {"NCCL_P2P_DISABLE": "1"}),
    "2 hosts of 1": ((2, 1), 1, EACH, {}),
    "4 hosts of 1": ((4, 1), 1, EACH, {}),
    "8 hosts of 1": ((8, 1), 1, EACH, {}),
    "2 hosts of 2": ((2, 2), 1, EACH, {}),
    "4 hosts of 2": ((4, 2), 1, EACH, {}),
    "4 hosts of 2, all-gather, reduce-scatter": ((4, 2), 1, "gr", {}),
    "4 hosts of 2, all-to-all": ((4, 2), 1, "t", {}),
    "2 hosts of 2, 2 communicators": ((2, 2), 2, EACH, {}),
}


def job(gpus, count, operations):
    """One rank. gpus: of each host."""
    rank = int(os.environ["RANK"])
    host, gpu = divmod(rank, gpus)
    if int(os.environ["WORLD_SIZE"]) > gpus:
        os.environ["NCCL_HOSTID"] = f"host-{host}"
        gpu = gpu if gpus > 1 else host % GPUS
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    ranks = dist.get_world_size()

    def others():
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    def use(group, bytes_):
        whole = torch.ones(bytes_ // 2, dtype=torch.bfloat16, device="cuda")
        part = torch.ones(whole.numel() // ranks, dtype=whole.dtype, device="cuda")
        for operation in operations:
            if operation == "g":
                dist.all_gather_into_tensor(whole, part, group=group)
            elif operation == "r":
                dist.reduce_scatter_tensor(part, whole, group=group)
            elif operation == "a":
                dist.all_reduce(whole, group=group)
            elif operation == "b":
                dist.broadcast(whole, 0, group=group)
            elif operation == "t":
                dist.all_to_all_single(torch.empty_like(whole), whole, group=group)
            else:
                ring = [dist.P2POp(dist.isend, part, (rank + 1) % ranks, group),
                        dist.P2POp(dist.irecv, torch.empty_like(part), (rank - 1) % ranks, group)]
                for work in dist.batch_isend_irecv(ring):
                    work.wait()

    before = others()
    for group in [dist.group.WORLD] + [dist.new_group() for _ in range(count - 1)]:
        if not operations:
            dist.barrier(group=group)  # makes the communicator; its all-reduce of 4 bytes is the least use there is
        for bytes_ in (64 * MIB, 4096, 64 * MIB):
            use(group, bytes_)
        torch.cuda.synchronize()
    if rank == 0:
        print(f"grown {others() - before}", flush=True)
    dist.destroy_process_group()


QUESTION = """SELECT c.comm, max(c.nranks) AS ranks, max(c.device_bytes) AS bytes,
  (SELECT group_concat(DISTINCT operation || ' ' || coalesce(algorithm, '-') || ' ' || coalesce(protocol, '-') || ' ' ||
     coalesce(channels, '-')) FROM collective k WHERE k.comm = c.comm) AS calls
FROM communicator c GROUP BY c.comm ORDER BY min(c.start_ns)"""


def measure(name, out):
    (hosts, gpus), count, operations, environment = CONFIGURATIONS[name]
    directory = out / "".join(letter if letter.isalnum() else "-" for letter in name)
    done = subprocess.run([SHARDLEDGER, "run", "-o", directory, "--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(hosts * gpus),
                           "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", __file__, "--job", str(gpus), str(count), operations],
                          env={**os.environ, **environment}, text=True, capture_output=True, timeout=150)
    grown = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("grown ")]
    if done.returncode or len(grown) != 1:
        raise RuntimeError(f"{name}: exited {done.returncode}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    asked = subprocess.run([SHARDLEDGER, "query", "--json", QUESTION, directory], text=True, capture_output=True, check=True)
    growth = subprocess.run([SHARDLEDGER, "device", "--rank", "0", "--limit", "all", "--json", directory], text=True, capture_output=True)
    (out / f"{directory.name}.device.json").write_text(growth.stdout)
    return {"name": name, "hosts": hosts, "gpus": gpus, "operations": operations, "environment": environment,
            "communicators": json.loads(asked.stdout), "grown": grown[0]}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--only", action="append", choices=CONFIGURATIONS)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "nccl-memory")
    p.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.job:
        return job(int(a.job[0]), int(a.job[1]), a.job[2])
    a.out.mkdir(parents=True, exist_ok=True)
    names, rows, failed = a.only or list(CONFIGURATIONS), [], False

    def show(row):
        rows.append(row)
        (a.out / "nccl-memory.json").write_text(json.dumps(rows, indent=1) + "\n")
        held = " + ".join(f"{c['bytes'] / MIB:.0f}" for c in row["communicators"])
        print(f"| {row['name']} | {row['hosts']} × {row['gpus']} | {held} | {row['grown'] / MIB:.0f} |", flush=True)

    show(measure(names[0], a.out))  # alone: others' memory would count as NCCL's
    with concurrent.futures.ThreadPoolExecutor(a.workers) as pool:
        running = [pool.submit(measure, name, a.out) for name in names[1:]]
        for done in concurrent.futures.as_completed(running):
            try:
                show(done.result())
            except (RuntimeError, subprocess.SubprocessError) as error:
                failed = True
                print(error, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
