"""`shardledger watch` beside a job that runs: what it shows is true then."""

import json
import time

from .harness import CheckFailed, Result, shardledger
from .robustness import steps_of_all
from .truth import read_truth
from .variants import SMALL

STEPS = 200  # enough that the job still runs when it is looked at


def check_watch(harness):
    options = [*SMALL, "--steps", STEPS, "--truth", "truth"]
    with harness.started("watch", "fsdp2_train.py", options) as (process, run):
        yield watched(harness, process, run)
        harness.end(process, run)
    if run.status:
        raise CheckFailed(f"the job that was watched exited {run.status}; see {run.log.name}")


def watched(harness, process, run):
    """Looks once, as soon as all ranks have ended some steps, and compares the picture with what the job says of itself."""
    deadline = time.monotonic() + 90
    while steps_of_all(run, harness) < 3:
        if process.poll() is not None or time.monotonic() > deadline:
            raise CheckFailed(f"the job did not get to its third step; see {run.log.name}")
        time.sleep(0.05)
    ended = steps_of_all(run, harness)
    told = json.loads(shardledger("watch", run.directory, "--once", "--json", command=harness.command))
    text = shardledger("watch", run.directory, "--once", command=harness.command)
    alive = process.poll() is None
    (harness.out / f"{run.name}-watch.txt").write_text(text)
    (harness.out / f"{run.name}-watch.json").write_text(json.dumps(told, indent=1))
    return pictured(f"{run.name}: watch", told, text, read_truth(run.truth), harness.ranks, ended, alive)


def pictured(name, told, text, truth, ranks, ended, alive):
    """Every rank is there, running, in a step that the job was in, and with the highest peak of the steps until then."""
    wrong = []
    seen = {row["rank"]: row for row in told["ranks"]}
    if sorted(seen) != list(range(ranks)):
        wrong.append(f"it shows ranks {sorted(seen)} of {ranks}")
    for rank, row in seen.items():
        peaks = {max(truth[rank, s]["allocated_peak"] for s in range(last + 1))
                 for last in range(ended - 1, STEPS) if (rank, last) in truth}
        # The log is read up to a tenth of a second ago: a step may have ended, and not be there.
        if row["status"] != "running" or not ended - 2 <= (row["step"] if row["step"] is not None else -1) < STEPS:
            wrong.append(f"rank {rank}: {row['status']} in step {row['step']} after {ended} steps")
        if row["peak_allocated_bytes"] not in peaks:
            wrong.append(f"rank {rank}: peak of {row['peak_allocated_bytes']} B")
        if row["steps_differed"] or row["events_lost"]:
            wrong.append(f"rank {rank}: {row['steps_differed']} steps differ, {row['events_lost']} events lost")
        if not any(line.split()[:2] == [str(rank), "running"] for line in text.splitlines()):
            wrong.append(f"rank {rank} is not in the text")
    if not told["categories"]:
        wrong.append("no category")
    if not alive:
        wrong.append("the job had ended before it was looked at")
    steps = ", ".join(f"rank {rank} in step {row['step']}" for rank, row in sorted(seen.items()))
    return Result(name, not wrong, "; ".join(wrong) or f"{steps}; each with its peak so far")
