"""What recording costs: blocks of steps with recording on and off, in pairs, in one process, in random order.

    shardledger run -- torchrun --nproc-per-node 2 overhead.py --out overhead.json

Two runs of the same job differ by more than a profiler costs (clocks, placement, neighbours), so on and off are compared
within a process and within a second. Rank 0 writes one pair a line: on_ms and off_ms, both milliseconds a step.
"""

import argparse
import ctypes
import json
import os
import random
import time

import torch
import torch.distributed as dist
from training import Training


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", type=int, default=60)
    p.add_argument("--block", type=int, default=6, help="steps in a block")
    p.add_argument("--out", required=True)
    return p.parse_args()


def main():
    a = parse()
    ledger = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"])  # the copy that is already loaded
    training = Training()
    order = random.Random(1)  # the same on all ranks: they are on and off together

    def block(recording):
        (ledger.sl_resume if recording else ledger.sl_pause)()
        assert ledger.sl_recording() == recording
        training.step()  # not timed: whatever the switch itself costs
        torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(a.block):
            training.step()
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start) / a.block

    for _ in range(10):
        training.step()
    pairs = []
    for _ in range(a.pairs):
        times = {}
        for recording in order.sample([0, 1], 2):
            times[recording] = block(recording)
        pairs.append({"on_ms": times[1], "off_ms": times[0]})
    ledger.sl_resume()
    if training.rank == 0:
        with open(a.out, "w") as out:
            out.writelines(json.dumps(pair) + "\n" for pair in pairs)
    training.close()


if __name__ == "__main__":
    main()
