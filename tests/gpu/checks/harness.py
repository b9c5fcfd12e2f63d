"""Where things are, how a job is run with the plugin, and what a check's result is."""

import contextlib
import dataclasses
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GPU_TESTS = ROOT / "tests" / "gpu"
BUILD = ROOT / "build" / "release"
SHARDLEDGER = BUILD / "bin" / "shardledger"
PLUGIN = BUILD / "lib" / "libshardledger.so"

MIB = 1 << 20


class CheckFailed(Exception):
    """What was being checked can't be said to work; the message is for the table."""


class OutOfTime(CheckFailed):
    """The check took longer than it may."""


@dataclasses.dataclass
class Result:
    """One row of the table."""

    name: str
    passed: "bool | None"  # None: not run
    figure: str  # the measured facts, in a few words
    details: dict = dataclasses.field(default_factory=dict)  # for the JSON file only
    seconds: float = 0.0

    @property
    def outcome(self):
        return {True: "pass", False: "FAIL", None: "not run"}[self.passed]


@dataclasses.dataclass
class Run:
    """A job that was recorded: its run directory, the prefix of its truth files, its output."""

    name: str
    directory: Path
    truth: Path
    log: Path
    status: int
    seconds: float

    def processes(self):
        """The log directories, one a process that recorded something."""
        return sorted(path for path in self.directory.iterdir() if path.is_dir())

    def ledger(self):
        """A read-only connection to the run's ledger, which is built first when `run` did not."""
        path = self.directory / "ledger.sqlite"
        if not path.exists():
            shardledger("ingest", self.directory)
        return contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True))


def shardledger(*arguments, command=SHARDLEDGER, timeout=300):
    """Runs the command and returns its stdout; a failure carries its last words."""
    done = subprocess.run(
        [command, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
    )
    if done.returncode:
        words = done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["no message"]
        raise CheckFailed(f"shardledger {arguments[0]} exited {done.returncode}: {words[-1]}")
    return done.stdout


def clean_environment():
    """The environment without anything that would attach a tool already, or steer ours."""
    attached = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NCCL_PROFILER_PLUGIN")
    return {k: v for k, v in os.environ.items() if k not in attached and not k.startswith("SHARDLEDGER_")}


def descendants(pid):
    """The processes that it started, that these started, and so on."""
    children, found = {}, [pid]
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended since
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    for one in found:
        found += children.get(one, [])
    return found[1:]


def stop(process):
    """Ends a job that is still running: torchrun is asked first, and ends its workers. These are in sessions of their own,
    so those that hang have to be found."""
    workers = []
    if process.poll() is None:
        workers = descendants(process.pid)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    process.wait()


def broken(name, error):
    """The result of a check that could not be made; a CheckFailed has words of its own."""
    return Result(name, False, str(error) if isinstance(error, CheckFailed) else f"{type(error).__name__}: {error}")


def attempt(name, check):
    """The check's result. What breaks in it is its failure alone: what comes after it in the same job is checked too."""
    try:
        return check()
    except OutOfTime:
        raise
    except Exception as error:  # noqa: BLE001
        return broken(name, error)


class Harness:
    """Runs jobs of `ranks` processes, one after the other, below `work`; keeps what they print in `out`."""

    command, plugin = SHARDLEDGER, PLUGIN  # of the build

    def __init__(self, out, work, ranks):
        self.out, self.work, self.ranks = out, work, ranks

    def torchrun(self):
        program = shutil.which("torchrun")
        start = [program] if program else [sys.executable, "-m", "torch.distributed.run"]
        return [*start, "--standalone", "--nproc-per-node", str(self.ranks)]

    @contextlib.contextmanager
    def started(self, name, script, options=(), attach="run", environment=None):
        """
        Starts a job and yields (process, Run); whatever is left of it is killed at the end.

        attach "run": through `shardledger run`; "environment": by CUDA_INJECTION64_PATH alone, in a working directory of
        its own, where the plugin makes its default run directory; None: not at all.
        """
        place = self.work / name
        place.mkdir(parents=True)
        job = [*self.torchrun(), str(GPU_TESTS / script), *map(str, options)]
        env = {**clean_environment(), **(environment or {})}
        if attach == "run":
            directory = place / "run"
            command = [str(self.command), "run", "-o", str(directory), "--", *job]
        elif attach == "environment":
            directory = place / "shardledger-out"
            command = job
            env["CUDA_INJECTION64_PATH"] = str(self.plugin)
        else:
            directory, command = place, job
        log = self.out / f"{name}.log"
        with open(log, "w") as output:
            process = subprocess.Popen(
                command, cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
            try:
                yield process, Run(name, directory, place / "truth", log, 0, 0.0)
            finally:
                stop(process)

    def end(self, process, run, timeout=120):
        """Waits for the job's end and keeps its status; it has to leave a run directory."""
        try:
            run.status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise CheckFailed(f"the job did not end in {timeout} s; see {run.log.name}") from None
        if not run.directory.is_dir():
            raise CheckFailed(f"the job exited {run.status} and left no {run.directory.name}; see {run.log.name}")

    def train(self, name, script="fsdp2_train.py", options=(), timeout=120, **how):
        """Runs a job to its end."""
        begin = time.monotonic()
        with self.started(name, script, options, **how) as (process, run):
            self.end(process, run, timeout)
        run.seconds = time.monotonic() - begin
        if run.status:
            raise CheckFailed(f"the job exited {run.status}; see {run.log.name}")
        return run
