"""What goes wrong in processes with GPUs, and what ShardLedger does then: ../reliability.py, a row for each of its checks."""

import re
import subprocess
import sys

from .harness import GPU_TESTS, Result, clean_environment, stop

SCRIPT = GPU_TESTS / "reliability.py"
SECONDS = 165  # it starts nothing after so long
OUTCOMES = {"PASS": True, "FAIL": False, "SKIP": None}


def check_reliability(harness):
    command = [sys.executable, str(SCRIPT), "--out", str(harness.out), "--budget", str(SECONDS)]
    log = harness.out / "reliability.log"
    with open(log, "w") as errors:
        process = subprocess.Popen(command, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                   text=True, start_new_session=True)
        try:
            for line in process.stdout:
                found = re.fullmatch(r"(PASS|FAIL|SKIP)  (\S+)\s+(.*)\n", line)
                if found:
                    yield Result(f"reliability: {found[2]}", OUTCOMES[found[1]], found[3])
            process.wait()
        finally:
            stop(process)
    if process.returncode not in (0, 1):  # 1: a check failed, and has its row
        yield Result("reliability", False, f"{SCRIPT.name} exited {process.returncode}; see {log.name}")
