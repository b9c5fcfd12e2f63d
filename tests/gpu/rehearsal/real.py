"""Real runs of two ranks on two GPUs against rehearsals of the same jobs, each job alone in a process.

    python tests/gpu/rehearsal/rehearsal.py --real [--only NAME]… [--workers N] [--budget SECONDS] [--out DIR]

torchrun runs each job with no recorder; `shardledger rehearse` runs it as rank 0 and rank 1 on one of the GPUs. Both write
torch.cuda.memory_stats down, and the peaks and ends of each step are compared. Where they differ the real run is made once
more: a figure on which two real runs disagree depends on their timing, and can't be held against the rehearsal. Then other
world sizes by formula. Writes real.md and real.json as results come; exits 1 when a figure differs on which the real runs agree.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from checks.harness import GPU_TESTS, clean_environment, stop
from checks.truth import QUANTITIES
from checks.variants import SMALL
from matrix.processes import PROCESSES

import rehearsal

# Jobs that have no run without a recorder: why.
LEFT_OUT = {"late-attach": "it attaches a recorder"}

# What a job has in both kinds of runs. A compilation that finds the other one's results allocates less.
ENVIRONMENT = {"compiled-blocks": {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_COMPILE_THREADS": "4"}}


@dataclasses.dataclass
class Job:
    name: str
    script: str
    options: list
    environment: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Row:
    job: str
    rank: int
    steps: int = 0
    compared: int = 0
    equal: int = 0
    by_timing: int = 0  # differ, and two real runs do as well
    differences: list = dataclasses.field(default_factory=list)  # (step, figure, real, rehearsed, the second real run's or None)
    error: str = ""
    rerun: bool = False

    @property
    def exact(self):
        return bool(self.steps) and self.equal == self.compared and not self.error

    @property
    def wrong(self):
        return bool(self.error) or not self.steps or self.equal + self.by_timing < self.compared


def jobs(device):
    small = [str(option) for option in SMALL]
    if device == "cuda":
        for name, more in (("", []), ("-mixed-precision", ["--mixed-precision"]),
                           ("-recompute", ["--mixed-precision", "--recompute"])):
            yield Job(f"fsdp2-train{name}", "fsdp2_train.py", [*small, *more])
    for process in PROCESSES:
        if process.tracks or len(process.quantities) < len(QUANTITIES):
            continue
        for job in process.jobs:
            if job not in LEFT_OUT:
                name = job if process.jobs[0] != "bf16" or process.name == "fsdp2-shapes" else f"{process.name}/{job}"
                environment = {**process.environment, **ENVIRONMENT.get(job, {})}
                yield Job(name, process.script, ["--jobs", job, "--device", device, *process.options], environment)


def steps_of(path):
    return {row["step"]: row for row in rehearsal.read(path) if "step" in row and "end_ns" in row or "ms" in row}


def words_of(path):
    """What a truth file says went wrong; None where the job ended as it should."""
    rows = rehearsal.read(path)
    said = [str(row.get("error") or row.get("skipped")) for row in rows if "error" in row or "skipped" in row]
    return said[0] if said else None


def compare(job, rank, real, rehearsed, second=None, figures=rehearsal.FIGURES):
    """real, rehearsed, second: folders with truth files."""
    file = f"truth.rank{rank}"
    want, got = steps_of(real / file), steps_of(rehearsed / file)
    again = steps_of(second / file) if second else {}
    row = Row(job.name, rank, steps=len(want), rerun=bool(again))
    errors = {"real": words_of(real / file), "rehearsed": words_of(rehearsed / file)}
    if not (errors["real"] and errors["real"] == errors["rehearsed"]):
        row.error = "; ".join(f"{key}: {words}" for key, words in errors.items() if words)
    elif not want and not got:
        row.error = f"both: {errors['real']}"
    if not want:
        row.error = row.error or "the real run wrote no step down"
    if set(want) != set(got):
        row.error = row.error or f"{len(want)} steps in the real run, {len(got)} rehearsed"
    for step in sorted(set(want) & set(got)):
        for figure in figures:
            row.compared += 1
            real_one, mine = want[step].get(figure), got[step].get(figure)
            if real_one == mine:
                row.equal += 1
                continue
            other = again.get(step, {}).get(figure)
            row.by_timing += other is not None and other != real_one
            row.differences.append((step, figure, real_one, mine, other))
    return row


class Proof:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.begin, self.lock, self.children = time.monotonic(), threading.Lock(), set()
        self.deadline = self.begin + options.budget
        self.figures = rehearsal.FIGURES if options.device == "cuda" else ()
        self.gpus, self.turn = self._gpus(), 0
        self.rows, self.sizes = {}, {}

    @staticmethod
    def _gpus():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return visible.split(",") if visible else ["0", "1"]

    def end(self, *_):
        self.deadline = 0
        for child in tuple(self.children):
            with contextlib.suppress(ProcessLookupError):
                child.terminate()

    def _run(self, place, command, environment):
        """Its exit status, or why there is none."""
        left = min(self.deadline - time.monotonic(), self.options.timeout)
        if left < 5:
            return "no time left"
        place.mkdir(parents=True, exist_ok=True)
        env = {**clean_environment(), "OMP_NUM_THREADS": "1", **environment}
        with open(place / "log.txt", "w") as log:
            child = subprocess.Popen(list(map(str, command)), cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=log,
                                     stderr=log, start_new_session=True)
            self.children.add(child)
            try:
                return child.wait(left)
            except subprocess.TimeoutExpired:
                return f"no end in {left:.0f} s"
            finally:
                self.children.discard(child)
                stop(child)

    def real(self, job, place):
        environment = {name: value for name, value in job.environment.items() if not name.startswith("SHARDLEDGER_")}
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, GPU_TESTS / job.script]
        return self._run(place, [*command, *job.options, "--truth", place / "truth"], environment)

    def rehearse(self, job, place, world=2, ranks="0-1"):
        with self.lock:
            gpu, self.turn = self.gpus[self.turn % len(self.gpus)], self.turn + 1
        command = [rehearsal.COMMAND, "rehearse", "--world-size", world, "--rank", ranks, "--steps", rehearsal.ALL_STEPS,
                   "-o", place / "run", "--", sys.executable, GPU_TESTS / job.script, *job.options, "--truth", place / "truth"]
        return self._run(place, command, {**job.environment, "CUDA_VISIBLE_DEVICES": gpu})

    def place(self, job, what):
        return self.work / job.name.replace("/", "-") / what

    def judge(self, job, statuses):
        """Rows of both ranks, of what there is by now."""
        second = self.place(job, "real-2") if "real-2" in statuses else None
        rows = [compare(job, rank, self.place(job, "real"), self.place(job, "rehearsed"), second, self.figures)
                for rank in (0, 1)]
        bad = "; ".join(f"{what}: {status if isinstance(status, str) else f'exit status {status}'}"
                        for what, status in statuses.items() if status)
        for row in rows:
            row.error = "; ".join(filter(None, (bad, row.error)))
        self.rows[job.name] = rows
        return rows

    def one_size(self, world):
        job = Job(f"world-{world}", "fsdp2_train.py", ["--steps", "3"])
        place = self.place(job, "rehearsed")
        self.rehearse(job, place, world, "0")
        rows = rehearsal.read(place / "truth.rank0")
        return world, rows[-1] if rows else None

    def all(self, jobs):
        """Rehearsals are behind real runs in the queue: the first of them compiles, and the others would wait for it."""
        with concurrent.futures.ThreadPoolExecutor(self.options.workers) as pool:
            running, statuses = {}, {job.name: {} for job in jobs}

            def submit(job, what):
                function = self.rehearse if what == "rehearsed" else self.real
                running[pool.submit(function, job, self.place(job, what))] = (job, what)

            lead = self.options.workers
            order = [(job, "rehearsed") for job in jobs[:1]] + [(job, "real") for job in jobs[:lead]]
            for place, job in enumerate(jobs[1:]):
                order.append((job, "rehearsed"))
                order += [(later, "real") for later in jobs[place + lead : place + lead + 1]]
            for job, what in order:
                submit(job, what)
            if self.options.device == "cuda" and not self.options.only:
                for world in rehearsal.SIZES:
                    running[pool.submit(self.one_size, world)] = (None, world)
            while running:
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    self._finished(*running.pop(future), future, statuses, submit)
                self.write()

    def _finished(self, job, what, future, statuses, submit):
        try:
            result = future.result()
        except Exception as error:  # noqa: BLE001
            result = f"{type(error).__name__}: {error}"
        if job is None:
            self.sizes[what] = result[1] if isinstance(result, tuple) else None
        else:
            mine = statuses[job.name]
            mine[what] = result
            if {"real", "rehearsed"} <= set(mine):
                rows = self.judge(job, mine)
                if "real-2" not in mine and any(row.differences for row in rows):
                    submit(job, "real-2")
        name = f"world {what}" if job is None else f"{job.name} {what}"
        ended = "" if isinstance(result, tuple) or result == 0 else f": {result}"
        print(f"{time.monotonic() - self.begin:4.0f} s  {name}{ended}", file=sys.stderr, flush=True)

    def write(self):
        text = table([row for rows in self.rows.values() for row in rows], self.sizes, time.monotonic() - self.begin)
        (self.options.out / "real.md").write_text(text)
        rows = [dataclasses.asdict(row) for rows in self.rows.values() for row in rows]
        (self.options.out / "real.json").write_text(json.dumps({"rows": rows, "sizes": self.sizes}))

    def failed(self, jobs):
        rows = [row for rows in self.rows.values() for row in rows]
        wrong_sizes = rehearsal.size_lines(self.sizes)[1] if self.sizes else 0
        return len(rows) < 2 * len(jobs) or any(row.wrong for row in rows) or wrong_sizes > 0


def difference(step, figure, real, mine, other):
    text = f"step {step} {figure} {mine - real:+,}" if None not in (real, mine) else f"step {step} {figure} –"
    return text if other is None else f"{text} (2nd real run {other - real:+,})"


def table(rows, sizes, seconds):
    compared, equal, by_timing = (sum(getattr(row, name) for row in rows) for name in ("compared", "equal", "by_timing"))
    lines = [
        f"{sum(row.exact for row in rows)} of {len(rows)} rehearsals (a job as one rank) equal the real run in every figure of "
        f"every step: {equal:,} of {compared:,}; of the rest {by_timing:,} differ between two real runs too. {seconds:.0f} s.",
        "",
        "| job | rank | steps | equal | by timing | differences |",
        "| --- | ---: | ---: | --- | ---: | --- |",
    ]
    for row in rows:
        words = "; ".join(filter(None, [row.error, *(difference(*one) for one in row.differences[:6])]))
        words += f"; {len(row.differences) - 6} more" if len(row.differences) > 6 else ""
        lines.append(f"| {row.job} | {row.rank} | {row.steps} | {row.equal} of {row.compared} | {row.by_timing or ''} | {words} |")
    if sizes:
        lines += [
            "",
            "| ranks | requested peak | the fake group's | reserved peak | requested end | off 4 × shards + 2 ranks' rest |",
            "| ---: | ---: | --- | ---: | ---: | ---: |",
            *rehearsal.size_lines(sizes)[0],
        ]
    return "\n".join(lines) + "\n"


def parse(arguments):
    p = argparse.ArgumentParser(prog="rehearsal.py --real", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", action="append", default=[], metavar="NAME", help="only this job (repeat it for more)")
    p.add_argument("--workers", type=int, default=28, help="runs at a time (28)")
    p.add_argument("--budget", type=float, default=600, metavar="SECONDS", help="for everything (600)")
    p.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="for one run (120)")
    p.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: only try it; figures are not compared")
    p.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or "."), metavar="DIR", help="($OUT, else here)")
    p.add_argument("--keep", type=Path, metavar="DIR", help="keep truth files and output there")
    p.add_argument("--list", action="store_true", help="name the jobs and exit")
    return p, p.parse_args(arguments)


def main(arguments):
    p, options = parse(arguments)
    chosen = list(jobs(options.device))
    unknown = sorted(set(options.only) - {job.name for job in chosen})
    if unknown:
        p.error(f"no job is named {unknown[0]}; --list names them")
    chosen = [job for job in chosen if not options.only or job.name in options.only]
    if options.list:
        print("\n".join(job.name for job in chosen))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    work = options.keep.resolve() if options.keep else Path(tempfile.mkdtemp(prefix="shardledger-real-"))
    proof = Proof(options, work)
    signal.signal(signal.SIGTERM, proof.end)
    try:
        proof.all(chosen)
    finally:
        proof.write()
        print((options.out / "real.md").read_text(), end="")
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)
    return 1 if proof.failed(chosen) else 0
