"""Jobs that die, and jobs that profile themselves."""

import json
import os
import signal
import time

from .harness import CheckFailed, Result
from .truth import check_exact, differences, read_steps, read_truth
from .variants import KILLED_LIMIT, SMALL, keep


def check_kill(harness, record=None):
    """kill -9 of every rank in mid-step: the ledger still builds, and holds every step that had ended, to the byte."""
    options = [*SMALL, "--steps", 100_000, "--truth", "truth"]
    with harness.started("kill", "fsdp2_train.py", options) as (process, run):
        deadline = time.monotonic() + 90
        while steps_of_all(run, harness) < 4:
            if process.poll() is not None or time.monotonic() > deadline:
                raise CheckFailed(f"the job did not get to its fourth step; see {run.log.name}")
            time.sleep(0.2)
        time.sleep(0.013)  # somewhere within a step
        victims = [int(path.name.split("-")[-2]) for path in run.processes()]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        status = process.wait(90)
    if record:
        yield keep(run, record / "killed-2rank", KILLED_LIMIT)
    truth = read_truth(run.truth)
    with run.ledger() as ledger:
        wrong = differences(truth, read_steps(ledger), "peak")
        clean = ledger.execute("SELECT count(*) FROM rank WHERE clean_exit = 1").fetchone()[0]
        ranks = ledger.execute("SELECT count(*) FROM rank").fetchone()[0]
    figure = f"{len(victims)} processes killed; {len(truth)} ended steps, {len(wrong)} peaks differ; `run` exited {status}"
    passed = len(victims) == ranks == harness.ranks and not wrong and not clean and status != 0
    yield Result("kill -9", passed, figure, {"differences": wrong[:20]})


def steps_of_all(run, harness):
    """Steps that every rank has ended."""
    truth = read_truth(run.truth)
    return min(sum(rank == r for r, _ in truth) for rank in range(harness.ranks))


def check_torch_profiler(harness):
    """The user's own torch.profiler gets its CUDA events, twice; the plugin records on, and NCCL kernels come again."""
    out = harness.out / "torch-profiler.json"
    run = harness.train("torch-profiler", "torch_profiler.py", ["--out", out])
    reports = [json.loads((out.parent / f"{out.name}.rank{rank}").read_text()) for rank in range(harness.ranks)]
    events = [profile["cuda_events"] for report in reports for profile in report["profiles"]]
    with run.ledger() as ledger:
        before = kernels(ledger, 0, min(report["profiles"][0]["start_ns"] for report in reports))
        after = kernels(ledger, max(report["profiles"][-1]["end_ns"] for report in reports), 1 << 62)
        bad = ledger.execute("SELECT count(*) FROM step WHERE checked = 0").fetchone()[0]
        steps = ledger.execute("SELECT count(*) FROM step WHERE rank = 0").fetchone()[0]
    figure = (
        f"CUDA events in the user's profiles: {', '.join(map(str, events))}; recorded kernels: {before} before, {after} "
        f"after; {steps} steps, {bad} failed the replay's check"
    )
    # Kernels may be switched off or CUPTI be taken: what is asked is that they come back, where they came at all.
    passed = min(events) > 0 and (after > 0 or before == 0) and not bad and steps >= 13
    yield Result("torch.profiler together", passed, figure, {"events": events})


def kernels(ledger, start_ns, end_ns):
    return ledger.execute(
        "SELECT count(*) FROM kernel WHERE start_ns >= ? AND end_ns <= ?", (start_ns, end_ns)
    ).fetchone()[0]
