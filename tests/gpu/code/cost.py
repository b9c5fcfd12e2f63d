"""What call stacks and operators cost a step: pairs of blocks of steps in one process, in random order.

    shardledger run -- python cost.py [--large] [--pairs N]     one GPU, FSDP2 on one rank

A block without any (as SHARDLEDGER_STACKS=none) against one whose steps are as those that are not sampled, and against one in
which all are. Everything else is recorded in all of them. Prints medians and the paired difference with its 95% interval.
"""

import argparse
import os
import random
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from checks.bootstrap import interval  # noqa: E402
from training import Training  # noqa: E402

BLOCK = 3  # steps


def say(mode):
    """none: stacks are off everywhere, as while the program records a history of its own. auto: no step is sampled. all."""
    from shardledger._companion.allocations import sites

    assert sites._library is not None, "call stacks are not recorded here"
    sites._users_history = mode == "none"
    sites._wanted = "all" if mode == "all" else "1000000:1000001"
    sites._follow()


def block(training, mode):
    say(mode)
    training.step()
    times = []
    for _ in range(BLOCK):
        torch.cuda.synchronize()
        start = time.perf_counter()
        training.step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--large", action="store_true", help="a batch of 32 instead of 2")
    parser.add_argument("--pairs", type=int, default=60)
    options = parser.parse_args()
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29511")):
        os.environ.setdefault(name, value)
    training = Training(**({"batch": 32} if options.large else {}))
    order = random.Random(1)
    for _ in range(10):
        training.step()
    for mode in ("auto", "all"):
        differences, offs, ons = [], [], []
        for _ in range(options.pairs):
            times = {which: block(training, which) for which in order.sample(["none", mode], 2)}
            offs += times["none"]
            ons += times[mode]
            differences.append(statistics.mean(times[mode]) / statistics.mean(times["none"]) - 1)
        differences.sort()
        cut = len(differences) // 5
        kept = differences[cut:len(differences) - cut]
        low, high = interval(differences)
        print(f"{'large' if options.large else 'small'} {mode}: {statistics.median(offs):.2f} ms without, {statistics.median(ons):.2f} ms with; "
              f"{statistics.mean(kept):+.2%} ({low:+.2%} to {high:+.2%}), {options.pairs} pairs of {BLOCK} steps", flush=True)


if __name__ == "__main__":
    main()
