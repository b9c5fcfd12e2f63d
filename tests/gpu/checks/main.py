"""The checks in their order, the options, the time budget."""

import argparse
import contextlib
import functools
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from . import report
from .devices import check_devices
from .harness import PLUGIN, ROOT, SHARDLEDGER, Harness, OutOfTime, Result, broken
from .history import check_history
from .oom import JOBS, check_fix, check_oom
from .overhead import check_overhead
from .programs import check_programs
from .reference import check_demo, check_environment, check_reference
from .reliability import check_reliability
from .robustness import check_keep_last, check_kill, check_torch_profiler
from .variants import VARIANTS, check_variant
from .watch import check_watch
from .wheel import check_wheel


def checks(record, wheel=None):
    """{name: (function of the harness, seconds it takes)}: what matters most first, in case the time runs out."""
    installed = {"wheel": (functools.partial(check_wheel, wheel=wheel), 70)} if wheel else {}
    variants = {name: (functools.partial(check_variant, name=name, record=record), 22) for name in VARIANTS}
    return {
        **installed,
        "reference": (check_reference, 35),
        "environment": (check_environment, 26),
        "kill": (functools.partial(check_kill, record=record), 24),
        "torch-profiler": (check_torch_profiler, 28),
        **{f"oom-{name}": (functools.partial(check_oom, name=name, record=record), 23) for name in JOBS},
        "watch": (check_watch, 20),
        "overhead": (check_overhead, 85),
        "keep-last": (check_keep_last, 90),
        "devices": (functools.partial(check_devices, record=record), 22),
        "demo": (check_demo, 20),
        **variants,
        "history": (check_history, 40),
        "programs": (check_programs, 60),
        "oom-fix": (functools.partial(check_fix, record=record), 45),
        "reliability": (check_reliability, 175),
    }


def parse(arguments):
    p = argparse.ArgumentParser(prog="scripts/gpu-check", description="Checks ShardLedger on a machine with GPUs.")
    p.add_argument("--only", action="append", metavar="NAME", help="run only this check (repeat it for more)")
    p.add_argument("--record", type=Path, metavar="DIR", help="keep the variants' logs and truth files here, as tests/data does")
    p.add_argument("--wheel", type=Path, metavar="FILE", help="check this wheel too, in an environment that is made for it")
    p.add_argument("--out", type=Path, metavar="DIR", help="where the table and the logs go ($OUT, else build/gpu-check)")
    p.add_argument("--ranks", type=int, default=2, help="processes of each job (2)")
    words = "start nothing that would end later, and end what does (900)"
    p.add_argument("--budget", type=float, default=900, metavar="SECONDS", help=words)
    p.add_argument("--list", action="store_true", help="name the checks and exit")
    options = p.parse_args(arguments)
    options.checks = checks(options.record and options.record.resolve(), options.wheel and options.wheel.resolve())
    unknown = sorted(set(options.only or []) - set(options.checks))
    if unknown:
        p.error(f"no check is named {unknown[0]}; there are: {', '.join(options.checks)}")
    options.out = (options.out or Path(os.environ.get("OUT") or ROOT / "build" / "gpu-check")).resolve()
    return options


def requirement_unmet(ranks):
    """Why nothing can be checked here, or None."""
    for path in (SHARDLEDGER, PLUGIN):
        if not path.exists():
            return f"{path} is missing: build first (scripts/test --quick), or bring build/release/bin and build/release/lib"
    try:
        import torch
    except ImportError:
        return f"{sys.executable} has no PyTorch: run it with a Python that has (PYTHON=… scripts/gpu-check)"
    if torch.cuda.device_count() < ranks:
        return f"{ranks} GPUs are needed, PyTorch sees {torch.cuda.device_count()}"
    return None


@contextlib.contextmanager
def limited(seconds):
    """Raises OutOfTime where the program is then: whatever it waits for, it waits no longer."""

    def ring(*_):
        raise OutOfTime(f"no end in {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_check(name, check, harness, results, seconds):
    """Adds the check's results as they come; whatever goes wrong in it is a result too, and the next one runs."""
    begin, count = time.monotonic(), len(results)
    try:
        with limited(seconds):
            for result in check(harness):
                results.append(result)
        if len(results) == count:
            results.append(Result(name, False, "nothing was checked"))
    except Exception as error:  # noqa: BLE001
        results.append(broken(name, error))
    results[count].seconds = time.monotonic() - begin


def end_in_order(*_):
    """On SIGTERM: the job that runs, in a session of its own, is ended too, and what was found is written."""
    sys.exit(143)


def main(arguments=None):
    options = parse(arguments)
    if options.list:
        print("\n".join(options.checks))
        return 0
    unmet = requirement_unmet(options.ranks)
    if unmet:
        print(f"gpu-check: {unmet}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, end_in_order)
    begin, results, on = time.monotonic(), [], report.machine()
    elapsed = lambda: time.monotonic() - begin  # noqa: E731
    with tempfile.TemporaryDirectory(prefix="shardledger-gpu-check-", ignore_cleanup_errors=True) as work:
        harness = Harness(options.out, Path(work), options.ranks)
        for name, (check, seconds) in options.checks.items():
            if options.only and name not in options.only:
                continue
            left, count = options.budget - elapsed(), len(results)
            if seconds > left:
                results.append(Result(name, None, f"no time left of {options.budget:.0f} s"))
                continue
            try:
                run_check(name, check, harness, results, min(left, 60 + 2 * seconds))
            finally:  # each time: who kills this keeps what there was
                for result in results[count:]:
                    print(f"{elapsed():4.0f} s  {result.outcome:<7}  {result.name}", file=sys.stderr, flush=True)
                report.write(options.out, results, on, elapsed())
    report.write(options.out, results, on, elapsed())
    print(report.text(results, on, elapsed()), end="")
    return 0 if all(result.passed for result in results) else 1
