"""A job whose last rank keeps a tensor on GPU 0, as a forgotten map_location does; and pinned host memory.

    shardledger run -- torchrun --nproc-per-node 2 foreign_device.py --truth truth

Each rank appends a JSON line a step to <truth>.rank<R>, as fsdp2_train.py does. At the end each writes to <truth>.devices.rank<R>
what PyTorch's own statistics say at that instant of every GPU (bytes allocated and reserved there) and of pinned host memory.
"""

import argparse
import json
import time

import torch
import torch.distributed as dist
from training import Training

KEPT_ELEMENTS = 50_000_000  # of one byte, on GPU 0
PINNED_ELEMENTS = 20_000_000  # of one byte, in host memory


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--truth", required=True)
    p.add_argument("--steps", type=int, default=4)
    a = p.parse_args()
    training = Training(vocabulary=8000, width=512, layers=4, sequence=512)
    last = training.rank == dist.get_world_size() - 1
    kept = []
    with open(f"{a.truth}.rank{training.rank}", "w") as truth:
        for step in range(a.steps):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            training.step()
            torch.cuda.synchronize()
            truth.write(json.dumps(own_statistics(training.rank, step)) + "\n")
            if last and step == 1:
                kept.append(torch.empty(KEPT_ELEMENTS, dtype=torch.uint8, device="cuda:0"))
                kept.append(torch.empty(PINNED_ELEMENTS, dtype=torch.uint8, pin_memory=True))
    with open(f"{a.truth}.devices.rank{training.rank}", "w") as out:
        devices = [statistics(device) for device in range(torch.cuda.device_count())]
        json.dump({"at_ns": time.time_ns(), "devices": devices, "host": host_statistics()}, out)
    training.close()
    del kept


def own_statistics(rank, step):
    values = torch.cuda.memory_stats()
    row = {"rank": rank, "step": step}
    for key in ("requested", "allocated", "active", "reserved"):
        row[f"{key}_peak"] = values[f"{key}_bytes.all.peak"]
        row[f"{key}_end"] = values[f"{key}_bytes.all.current"]
    return row


def statistics(device):
    values = torch.cuda.memory_stats(device)
    return {key: values.get(f"{key}_bytes.all.current", 0) for key in ("allocated", "reserved")}


def host_statistics():
    values = torch.cuda.host_memory_stats()
    return {key: values.get(f"{key}_bytes.current", 0) for key in ("allocated", "active")}


if __name__ == "__main__":
    main()
