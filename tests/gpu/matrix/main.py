"""Runs the processes, several at a time, and makes the table. A process that breaks off is started again for the rest."""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from checks import report
from checks.harness import MIB, ROOT, Harness
from checks.main import requirement_unmet

from . import table
from .compare import Row, compare_process, joined
from .processes import PROCESSES, selected


class Matrix:
    def __init__(self, options, work):
        self.options, self.harness = options, Harness(options.out, work, options.ranks)
        self.deadline = time.monotonic() + options.budget
        self.begin, self._print = time.monotonic(), threading.Lock()
        self._running = set()

    def end(self, *_):
        """On SIGTERM: nothing starts any more, and the jobs that run, in sessions of their own, are ended too."""
        self.deadline = 0
        for child in tuple(self._running):
            child.terminate()

    def run(self, process):
        """The rows of a process's jobs, whatever happens to it."""
        rows, rest, start = [], process, 0
        while rest.jobs:
            name = process.name if start == 0 else f"{process.name}.{start}"
            done = self._run_once(rest, name)
            ended = {row.job for row in done if row.error not in ("did not begin", "no time left")}
            if not ended or self.deadline <= time.monotonic():
                rows += done
                break
            rows += [row for row in done if row.job in ended]
            rest = dataclasses.replace(rest, jobs=tuple(job for job in rest.jobs if job not in ended))
            start += 1
        with self._print:
            bad = [row.job for row in rows if row.exact is False]
            words = f"{sum(row.exact is True for row in rows)} of {len(rows)} jobs exact"
            words += f", not: {', '.join(bad)}" if bad else ""
            print(f"{time.monotonic() - self.begin:4.0f} s  {process.name}: {words}", file=sys.stderr, flush=True)
        return rows

    def _run_once(self, process, name):
        timeout = min(self.options.timeout, self.deadline - time.monotonic())
        if timeout < 15:
            return [Row(job, process.tracks or process.name, error="no time left") for job in process.jobs]
        options = ["--jobs", ",".join(process.jobs), "--truth", "truth", "--device", self.options.device, *process.options]
        if self.options.small and process.script == "matrix/job.py":
            options.append("--small")
        broke = ""
        try:
            with self.harness.started(name, process.script, options, environment=process.environment) as (child, run):
                self._running.add(child)
                try:
                    run.status = child.wait(timeout)
                except subprocess.TimeoutExpired:
                    broke = f"no end in {timeout:.0f} s"
                finally:
                    self._running.discard(child)
            broke = broke or (f"the process exited {run.status}" if run.status else "")
            rows = self._compare(process, run)
        except Exception as error:  # noqa: BLE001
            rows = [Row(job, process.tracks or process.name, error=f"{type(error).__name__}: {error}") for job in process.jobs]
        for row in rows:
            if row.error == "broke off":
                row.error = f"broke off: {broke}; see {name}.log" if broke else row.error
        if broke and not any(row.error for row in rows):
            rows[-1].error = f"after its last job: {broke}; see {name}.log"
        return rows

    def _compare(self, process, run):
        with contextlib.ExitStack() as stack:
            try:
                ledger = stack.enter_context(run.ledger()) if run.directory.is_dir() else None
            except Exception as error:  # noqa: BLE001
                print(f"{run.name}: {error}", file=sys.stderr, flush=True)
                ledger = None
            rows = compare_process(process, run.truth, ledger)
        if self.options.record:
            keep(run, self.options.record / run.name)
        if self.options.keep_ledgers and (run.directory / "ledger.sqlite").exists():
            shutil.copy(run.directory / "ledger.sqlite", self.options.out / f"{run.name}.sqlite")
        return rows


def rows_of(process, future):
    """What became of the process; that the comparison itself broke is an error of its jobs, and of no others."""
    try:
        return future.result()
    except Exception as error:  # noqa: BLE001
        words = f"{type(error).__name__}: {error}"
        return [Row(job, process.tracks or process.name, error=words) for job in process.jobs]


def keep(run, destination):
    """Copies the logs, without the ledger that comes of them, and the truth files beside them."""
    shutil.rmtree(destination, ignore_errors=True)
    if run.directory.is_dir():
        shutil.copytree(run.directory, destination, ignore=shutil.ignore_patterns("ledger.sqlite*"))
    destination.mkdir(parents=True, exist_ok=True)
    for path in run.truth.parent.glob(f"{run.truth.name}.*rank*"):
        shutil.copy(path, destination)
    size = sum(path.stat().st_size for path in destination.rglob("*") if path.is_file())
    print(f"recorded {destination}: {size / MIB:.2f} MiB", file=sys.stderr, flush=True)


def parse(arguments):
    p = argparse.ArgumentParser(
        prog="scripts/truth-matrix",
        description="Runs small jobs of every shape on GPUs and compares the ledger with PyTorch's own figures.",
    )
    p.add_argument("--only", action="append", default=[], metavar="NAME", help="only this job or process (repeat it for more)")
    p.add_argument("--out", type=Path, metavar="DIR", help="where the table and the logs go ($OUT, else build/truth-matrix)")
    p.add_argument("--record", type=Path, metavar="DIR", help="keep each process's logs and truth files in DIR/<process>")
    p.add_argument("--small", action="store_true", help="fewer layers and steps, for records that are to be kept for long")
    p.add_argument("--keep-ledgers", action="store_true", help="copy each process's ledger to the table")
    p.add_argument("--ranks", type=int, default=2, help="processes of each job (2; 4 for HSDP and TP on 2 × 2)")
    p.add_argument("--workers", type=int, default=6, help="process groups at a time (6)")
    p.add_argument("--timeout", type=float, default=240, metavar="SECONDS", help="for one process group (240)")
    p.add_argument("--budget", type=float, default=480, metavar="SECONDS", help="for everything (480)")
    p.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: only try the jobs' code, without a GPU")
    p.add_argument("--list", action="store_true", help="name the jobs and exit")
    options = p.parse_args(arguments)
    try:
        options.processes = selected(options.only)
    except ValueError as error:
        p.error(str(error))
    options.out = (options.out or Path(os.environ.get("OUT") or ROOT / "build" / "truth-matrix")).resolve()
    options.record = options.record and options.record.resolve()
    return options


def main(arguments=None):
    options = parse(arguments)
    if options.list:
        for process in PROCESSES:
            print(f"{process.name}: {' '.join(process.jobs)}")
        return 0
    unmet = requirement_unmet(options.ranks) if options.device == "cuda" else None
    if unmet:
        print(f"truth-matrix: {unmet}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    on, rows = report.machine(), {}
    with tempfile.TemporaryDirectory(prefix="shardledger-truth-") as work:
        matrix = Matrix(options, Path(work))
        signal.signal(signal.SIGTERM, matrix.end)
        with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
            running = {pool.submit(matrix.run, process): process for process in options.processes}
            for future in concurrent.futures.as_completed(running):
                rows[running[future].name] = rows_of(running[future], future)
                ordered = joined(row for process in options.processes for row in rows.get(process.name, ()))
                # Each time, so that what a killed run had found is there.
                table.write(options.out, ordered, on, time.monotonic() - matrix.begin)
    print((options.out / "truth-matrix.md").read_text(), end="")
    return 1 if any(row.exact is False for row in ordered) else 0
