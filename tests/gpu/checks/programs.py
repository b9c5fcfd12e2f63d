"""The GoogleTest programs of build/release/bin, run again where a real driver and a real CUPTI are."""

import concurrent.futures
import contextlib
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from .harness import BUILD, ROOT, Result, clean_environment

TIMEOUT = 60
FAKES = BUILD / "fakes"  # libraries that the programs play driver and CUPTI with


def test_programs():
    """Executables that speak GoogleTest's options."""
    programs = (path for path in (BUILD / "bin").iterdir() if os.access(path, os.X_OK) and path.is_file())
    return sorted(path for path in programs if b"gtest_filter" in path.read_bytes())


def list_tests(program):
    listing = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, timeout=TIMEOUT, check=True)
    suite = ""
    for line in listing.stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith(".") and not name.startswith(" "):
            suite = name
        elif name.startswith("  "):
            yield program, suite + name.strip()


def run_test(test):
    """(name, outcome, output): each test in a process of its own, as ctest does."""
    program, name = test
    full = f"{program.name} {name}"
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        try:
            done = subprocess.run(
                [program, f"--gtest_filter={name}", f"--gtest_output=json:{report}"],
                cwd=BUILD, env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            return full, "failed", f"no end in {TIMEOUT} s"
        if done.returncode:
            return full, "failed", done.stdout + done.stderr
        cases = [case for suite in json.loads(report.read_text())["testsuites"] for case in suite["testsuite"]]
        ran = any(case["result"] == "COMPLETED" for case in cases)
        return full, "passed" if ran else "skipped", ""


@contextlib.contextmanager
def source_tree_in_place(programs):
    """The tests find their data by the path they were built at. Where the tree lies elsewhere now, and that path is free,
    a link stands there while they run."""
    links = []
    for program in programs:
        for found in re.findall(rb"(/[^\0]*)/tests/data\0", program.read_bytes()):
            path = Path(os.fsdecode(found))
            if not path.exists():
                with contextlib.suppress(OSError):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.symlink_to(ROOT)
                    links.append(path)
    try:
        yield
    finally:
        for link in links:
            link.unlink()


def check_programs(harness):
    programs = test_programs()
    build = BUILD.relative_to(ROOT)
    if not programs or not FAKES.is_dir():
        yield Result("test programs", None, f"{build}/bin has none" if not programs else f"they need {build}/fakes, which is not here")
        return
    with source_tree_in_place(programs), concurrent.futures.ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        outcomes = list(pool.map(run_test, [test for program in programs for test in list_tests(program)]))
    counts = {word: sum(outcome == word for _, outcome, _ in outcomes) for word in ("passed", "failed", "skipped")}
    failed = [(name, output) for name, outcome, output in outcomes if outcome == "failed"]
    (harness.out / "programs.log").write_text("".join(f"==== {name}\n{output}\n" for name, output in failed))
    figure = f"{len(programs)} programs: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
    figure += f" (first: {failed[0][0]})" if failed else ""
    yield Result("test programs", bool(counts["passed"]) and not failed, figure, {"failed": [name for name, _ in failed]})
