#!/usr/bin/env python3
"""The ten questions of an on-call engineer, each answered by one command, on made-up jobs whose outliers are known.

    bench/fleet_questions.py [RANKS]        prints the table of docs/ranks.md; 1,024 ranks where no number is given

Makes three runs of a job of so many ranks (make_fleet): yesterday's, today's, in which a rank, a host, a pipeline stage and a leaking
rank differ, and one that died: a rank on a host whose clock is a minute ahead runs out of memory, later another one does, the
others wait, and one was never recorded. Exits 1 where an answer lacks what was made up. tests/python/fleet_questions_test.py
asks the same of 256 ranks. Needs a build (SHARDLEDGER_BUILD_DIR, else build/release).
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("SHARDLEDGER_BUILD_DIR") or ROOT / "build" / "release").resolve() / "bin"
PER_HOST, STEPS, STAGES = 8, 16, 4


class Job:
    """Who differs, by the number of ranks."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.high = ranks // 2 + 9  # 2 GiB more from step 9
        self.host = 8  # 256 MiB more from the beginning: ranks 64 to 71
        self.stage = f"{ranks - ranks // STAGES}-{ranks - 1}"  # 128 MiB more from step 4
        self.leaks = 20  # 4 MiB a step from step 6
        self.first, self.second = 9, ranks - 56  # run out of memory, half a second apart
        self.absent = ranks // 4 + 13
        self.alike = ranks - 1 - PER_HOST - ranks // STAGES - 1

    def commands(self):
        """The arguments of make_fleet, by run."""
        common = ("--ranks", self.ranks, "--per-host", PER_HOST, "--steps", STEPS, "--mesh", f"pp:{STAGES}", "--mesh",
                  f"dp:{self.ranks // STAGES}")
        others = ",".join(f"{a}-{b}" for a, b in self.between(self.first, self.absent, self.second))
        return {
            "yesterday": common,
            "today": (*common, "--more", f"{self.high}:2048:2:9", "--more", f"{PER_HOST * self.host}-{PER_HOST * self.host + 7}:256:1:0",
                      "--more", f"{self.stage}:128:3:4", "--leak", f"{self.leaks}:4:6"),
            "died": (*common, "--clock", f"{self.first // PER_HOST}:60000", "--refused", f"{self.first}:12:0", "--refused",
                     f"{self.second}:12:500000", "--waits", f"{others}:12:700000", "--absent", self.absent),
        }

    def between(self, *left_out):
        start = 0
        for rank in sorted(left_out):
            yield start, rank - 1
            start = rank + 1
        yield start, self.ranks - 1

    def questions(self):
        """(question, arguments of shardledger, what its answer has to say: the first is told in the table)"""
        groups = f"{self.ranks} ranks in 5 groups; {self.alike} alike"
        return [
            ("who ran out first, and why", ("oom", "died"),
             (f"Out of memory: rank {self.first}, in step 12: 4.00 GiB asked for by PyTorch's allocator", "Why: too much is live",
              f"{self.first} | 1 | first: out of memory", f"{self.second} | 1 | out of memory | 500.0 ms")),
            ("is one rank different", ("ranks", "today"), (groups,)),
            ("which, how many, how far", ("ranks", "today"),
             (f"{self.high} (gpu-node-{self.high // PER_HOST:02d}) | +2.00 GiB", groups)),
            ("since when", ("ranks", "today"), (f"{self.high} (gpu-node-{self.high // PER_HOST:02d}) | +2.00 GiB activation, "
                                                "blocks.2 forward, since step 9",)),
            ("in what", ("ranks", "today"), ("+2.00 GiB activation, blocks.2 forward",)),
            ("is it one node", ("ranks", "today"), ("64-71 = all of gpu-node-08 | +256.0 MiB activation, blocks.1 forward, since step 0",)),
            ("is it one stage or expert", ("ranks", "today"),
             (f"{self.stage} = all of pp=3 | +128.0 MiB activation, blocks.3 forward, since step 4",)),
            ("who leaks", ("survivors", "today"), (f"Rank {self.leaks} of {self.ranks}, the only one that grows",)),
            ("who hangs, and who never came", ("oom", "died"),
             (f"{self.ranks - 1} of {self.ranks} ranks, missing: {self.absent};", f"| {self.ranks - 3} | waiting |",
              "AllGather of Model.blocks.2, call ")),
            ("what differs from yesterday's run", ("diff", "yesterday", "today"),
             (f"Peak A 296.0 MiB (rank 0, step 1), B 2.29 GiB (rank {self.high}, step 9): +2.00 GiB",
              "activation | 192.0 MiB | 2.19 GiB | +2.00 GiB")),
        ]


def make(job, directory):
    """The three runs, with their ledgers, in a directory that is there."""
    for run, arguments in job.commands().items():
        subprocess.run([BIN / "make_fleet", directory / run, *map(str, arguments)], check=True)
        subprocess.run([BIN / "shardledger", "ingest", directory / run], check=True, stdout=subprocess.DEVNULL)


def ask(directory, words):
    """What a command prints, and the seconds of processor that it takes."""
    start = time.monotonic()
    before = os.times()
    done = subprocess.run([BIN / "shardledger", *words], cwd=directory, check=True, capture_output=True, text=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, spent, time.monotonic() - start


def columns(text):
    """Columns with one bar between them, however wide they are."""
    lines = ([cell for cell in line.split("  ") if cell.strip()] for line in text.splitlines())
    return "\n".join(" | ".join(cell.strip() for cell in line) for line in lines)


def missing(answer, wanted):
    """What of it the answer does not say."""
    return [words for words in wanted if words not in columns(answer)]


def main(ranks="1024"):
    failed = False
    job = Job(int(ranks))
    with tempfile.TemporaryDirectory() as scratch:
        make(job, pathlib.Path(scratch))
        print(f"| question | command | its answer ({ranks} ranks) | seconds of processor |\n| --- | --- | --- | --- |")
        for question, words, wanted in job.questions():
            tries = [ask(scratch, words) for _ in range(3)]
            lacks = missing(tries[0][0], wanted)
            failed |= bool(lacks)
            told = wanted[0].replace(" | ", " ")
            print(f"| {question} | `shardledger {' '.join(words)}` | `{told}` | {min(spent for _, spent, _ in tries):.2f} |", flush=True)
            for words in lacks:
                print(f"fleet_questions: the answer lacks: {words}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
