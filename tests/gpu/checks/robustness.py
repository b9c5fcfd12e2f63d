"""Jobs that die, and jobs that profile themselves."""

import json
import os
import signal
import time

from .harness import MIB, CheckFailed, Result
from .truth import check_exact, differences, read_steps, read_truth
from .variants import SMALL, keep


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
        harness.end(process, run, 90)
    if record:
        yield keep(run, record / "killed-2rank")
    truth = read_truth(run.truth)
    with run.ledger() as ledger:
        wrong = differences(truth, read_steps(ledger), "peak")
        clean = ledger.execute("SELECT count(*) FROM rank WHERE clean_exit = 1").fetchone()[0]
        ranks = ledger.execute("SELECT count(*) FROM rank").fetchone()[0]
    figure = f"{len(victims)} processes killed; {len(truth)} ended steps, {len(wrong)} peaks differ; `run` exited {run.status}"
    passed = len(victims) == ranks == harness.ranks and not wrong and not clean and run.status != 0
    yield Result("kill -9", passed, figure, {"differences": wrong[:20]})


def steps_of_all(run, harness):
    """Steps that every rank has ended."""
    truth = read_truth(run.truth)
    return min(sum(rank == r for r, _ in truth) for rank in range(harness.ranks))


KEEP_LAST = {"SHARDLEDGER_MAX_BYTES": "6MiB", "SHARDLEDGER_AT_MAX": "keep-last"}
KEEP_LAST_BYTES = 7 * MIB  # of a process: while a file is made another may be about to go
KEEP_LAST_STEPS = 2400  # of 3 KiB or more each


def check_keep_last(harness):
    """A job whose log comes to its limit: the first and the latest steps stay, to the byte, and nothing is lost."""
    options = [*SMALL, "--steps", KEEP_LAST_STEPS, "--truth", "truth"]
    run = harness.train("keep-last", options=options, environment=KEEP_LAST, timeout=240)
    sizes = [sum(file.stat().st_size for file in process.iterdir()) for process in run.processes()]
    with run.ledger() as ledger:
        yield kept_last("keep-last", read_truth(run.truth), ledger, max(sizes, default=0))


def kept_last(name, truth, ledger, log_bytes):
    steps = read_steps(ledger)
    kept = {key: row for key, row in truth.items() if key in steps}
    wrong = differences(kept, steps, "peak")
    lost = ledger.execute("SELECT coalesce(sum(events_lost), 0) FROM rank").fetchone()[0]
    gaps = ledger.execute("SELECT count(*) FROM gap WHERE reason LIKE '% dropped to make room %'").fetchone()[0]
    words, right = [], bool(truth) and not wrong and not lost and log_bytes <= KEEP_LAST_BYTES
    for rank in sorted({rank for rank, _ in truth}):
        all_steps, own = ({step for r, step in rows if r == rank} for rows in (truth, kept))
        holes = sum(step in own and step + 1 not in own for step in range(max(all_steps)))
        right = right and {0, max(all_steps)} <= own and holes == 1
        words.append(f"rank {rank} {len(own)} of {len(all_steps)} steps, {holes} holes")
    figure = f"{'; '.join(words)}; {len(wrong)} peaks differ, {lost} events lost, {gaps} gaps told, "
    figure += f"at most {log_bytes / MIB:.1f} MiB of log"
    return Result(name, right and gaps == len(words), figure, {"differences": wrong[:20]})


def check_torch_profiler(harness):
    """The user's own torch.profiler gets its CUDA events, twice; the plugin records on, and NCCL kernels come again."""
    out = harness.out / "torch-profiler.json"
    # By default none of the steps from the tenth on would have kernels, with or without a profile before them.
    run = harness.train("torch-profiler", "torch_profiler.py", ["--out", out], environment={"SHARDLEDGER_STEPS": "all"})
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
