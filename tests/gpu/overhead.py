"""What recording costs: blocks of steps with recording on and off, in pairs, in one process, in random order.

    shardledger run -- torchrun --nproc-per-node 2 overhead.py --out overhead.jsonl
    shardledger run -- torchrun --nproc-per-node 2 overhead.py --out peers.jsonl --peers --seconds 180
    python overhead.py --show peers.jsonl

Two runs of the same job differ by more than a profiler costs (clocks, placement, neighbours), so on and off are compared
within a process and within a second. Rank 0 writes one pair a line as it is measured: tool, on_ms and off_ms, the
milliseconds of each step.

--peers measures other tools in the same way (peers.py says which), with ShardLedger paused. --show prints a table of
such a file and needs no GPU: the medians of all steps, and how much the halves of a pair differ: the mean of all pairs
without the fifth at either end, with its 95% interval from a bootstrap over the pairs.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import random
import statistics
import time
from pathlib import Path

from checks.bootstrap import interval

LARGE = {"batch": 32}  # times the default's sequence: more than the processor takes to launch


def parse():
    p = argparse.ArgumentParser()
    words = "at most (60; with --peers as many as there is time for); peers.py says how many pairs one has"
    p.add_argument("--rounds", type=int, help=words)
    p.add_argument("--block", type=int, default=3, help="steps in a block")
    p.add_argument("--large", action="store_true", help="a batch of 32 instead of 2: steps that the GPU limits")
    p.add_argument("--parts", action="store_true", help="measure the recording of events and the hooks by themselves too")
    p.add_argument("--peers", action="store_true", help="measure other tools too")
    p.add_argument("--seconds", type=float, help="at most (no limit; with --peers 180)")
    p.add_argument("--out", help="where rank 0 writes the pairs")
    p.add_argument("--show", help="print a table of such a file, and do nothing else")
    a = p.parse_args()
    if not (a.out or a.show):
        p.error("--out or --show is needed")
    a.rounds = a.rounds or (math.inf if a.peers else 60)
    a.seconds = a.seconds or (180 if a.peers else math.inf)
    return a


class Blocks:
    """Times blocks of steps. All ranks draw the same order: they are on and off together."""

    def __init__(self, training, synchronize, barrier):
        self.training, self.synchronize, self.barrier = training, synchronize, barrier
        self.order = random.Random(1)

    def time(self, peer, before_step):
        for _ in range(peer.untimed):
            before_step()
            self.training.step()
        self.synchronize()
        self.barrier()
        times = []
        for _ in range(peer.steps):
            start = time.perf_counter()
            before_step()
            self.training.step()
            self.synchronize()
            times.append(1e3 * (time.perf_counter() - start))
        return times

    def pair(self, peer):
        times = {}
        for on in self.order.sample([False, True], 2):
            if on:
                with peer.watch(self.training) as before_step:
                    times[on] = self.time(peer, before_step)
            else:
                times[on] = self.time(peer, lambda: None)
        return {"tool": peer.name, "on_ms": times[True], "off_ms": times[False]}

    def rounds(self, peers, go_on):
        """Pairs of every peer, peers in random order, round by round, at least one; go_on is asked after each round."""
        while True:
            for peer in self.order.sample(peers, len(peers)):
                for _ in range(peer.pairs):
                    yield self.pair(peer)
            if not go_on():
                return


def measure(a):
    import torch
    import torch.distributed as dist
    from peers import Ledger, others, parts, shardledger
    from training import Training

    attached = "CUDA_INJECTION64_PATH" in os.environ
    if not attached and not a.peers:
        raise SystemExit("overhead.py: ShardLedger is not attached; start this with 'shardledger run --'")
    training = Training(**(LARGE if a.large else {}))
    blocks = Blocks(training, torch.cuda.synchronize, dist.barrier)
    for _ in range(10):
        training.step()
    ledger = Ledger() if attached else None
    tools = shardledger(ledger, a.block) if ledger else []
    tools += parts(ledger) if ledger and a.parts else []
    tools += others(a.block) if a.peers else []

    def until(deadline):
        rounds = itertools.count(1)

        def go_on():
            rank_0_says = [next(rounds) < a.rounds and time.monotonic() < deadline]
            dist.broadcast_object_list(rank_0_says)
            return rank_0_says[0]

        return go_on

    pairs, done = [], 0
    start = time.monotonic()
    with open(a.out, "w") if training.rank == 0 else contextlib.nullcontext() as out:
        for stage in sorted({peer.stage for peer in tools}):
            here = [peer for peer in tools if peer.stage == stage]
            done += len(here)
            for pair in blocks.rounds(here, until(start + a.seconds * done / len(tools))):
                pairs.append(pair)
                if out:  # each at once: who ends the job early keeps the others
                    print(json.dumps(pair), file=out, flush=True)
    if ledger:
        ledger.resume()
    if training.rank == 0:
        print(table(pairs))
    training.close()


def read(path):
    """The pairs of such a file, without a last line that a kill cut off."""
    lines = Path(path).read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def steps_of(pairs, key):
    return [milliseconds for pair in pairs for milliseconds in pair[key]]


def middle(values):
    """Mean without the fifth at either end: outliers say nothing, and all others count."""
    values = sorted(values)
    cut = len(values) // 5
    return statistics.fmean(values[cut : len(values) - cut])


def differences(pairs):
    """Of each pair, relative. Its halves share whatever made the machine fast or slow at that moment."""
    return [statistics.median(pair["on_ms"]) / statistics.median(pair["off_ms"]) - 1 for pair in pairs]


def table(pairs):
    """One line a tool, in the order of their first pairs."""
    lines = [f"{'tool':<32} {'off, ms':>8} {'on, ms':>8} {'difference of the pairs, and 95 % interval':>45} {'pairs':>6}"]
    for tool in dict.fromkeys(pair["tool"] for pair in pairs):
        own = [pair for pair in pairs if pair["tool"] == tool]
        on, off = (statistics.median(steps_of(own, key)) for key in ("on_ms", "off_ms"))
        each = differences(own)
        low, high = interval(each, middle)
        words = f"{middle(each):+.2%}  {low:+.2%} to {high:+.2%}"
        lines.append(f"{tool:<32} {off:8.2f} {on:8.2f} {words:>45} {len(own):6d}")
    return "\n".join(lines)


def main():
    a = parse()
    if a.show:
        print(table(read(a.show)))
    else:
        measure(a)


if __name__ == "__main__":
    main()
