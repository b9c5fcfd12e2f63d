"""What came of advice: recorded dead jobs (tests/data/advice) run again, with each change, under the same limit.

    python tests/gpu/advice/outcomes.py DIR [--jobs N] [--only CASE]…

DIR/CASE.jsonl gets, of each change and some together, how the job ended and the rows that it printed, of PyTorch's own figures;
tests/data/advice/CASE/outcomes.jsonl is such a file. Nothing is recorded: one process that has imported torch is forked for each
run, but where a setting is read as PyTorch starts. A run that was cut off is left out.
"""

import argparse
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

from run import ALLOC, CHANGES, HERE, ROOT, apply

DATA = ROOT / "tests" / "data" / "advice"
ONLY = {"leak": ("leak",), "kept_outputs": ("evaluation",), "gradient_sync": ()}  # nothing that other jobs have
TOGETHER = ("adamw_fused+expandable_segments", "adamw_fused+no_workspaces", "expandable_segments+no_workspaces",
            "no_workspaces+sgd")
LEAST = "expandable_segments+no_workspaces+recompute+loss+batch"  # all that leaves less, beside the optimizer
LEAST_EACH = tuple(f"{LEAST}+{optimizer}" for optimizer in ("offload_optimizer", "sgd", "optimizer_in_backward"))
ONLY |= dict.fromkeys(LEAST_EACH, ("setup", "gradient", "gathered"))  # where nothing is enough


def rows(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"')]


def within(arguments, environment, out):
    """In a process of its own: the job, with its words in a file."""
    os.environ.update(environment)
    os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.path.insert(0, str(HERE))
    sys.argv = ["job.py", *arguments]
    import job

    job.main()


def outcome(case, words, limit, out):
    """How it ends with a change, and what it said; None: the job can't have it, or was cut off."""
    applied = apply(words)
    if not applied:
        return None
    arguments, said = [case, *applied[0], "--limit", str(limit)], out / f"{case}+{words}"
    if ALLOC in applied[1]:  # read as PyTorch starts
        command = [sys.executable, str(HERE / "job.py"), *arguments]
        said.write_text(subprocess.run(command, capture_output=True, text=True, env=os.environ | applied[1], timeout=60).stdout)
    else:
        process = multiprocessing.get_context("forkserver").Process(target=within, args=(arguments, applied[1], str(said)))
        process.start()
        process.join(60)
        if process.is_alive():
            process.kill()
    found = rows(said.read_text())
    ends = [row["end"] for row in found if "end" in row]
    return {"change": words, "end": ends[0], "rows": [row for row in found if "end" not in row]} if ends else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("place", type=Path)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    place = options.place.resolve()
    (place / "said").mkdir(parents=True, exist_ok=True)
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # no context before a fork
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["torch", "torch._dynamo", "torch.utils.checkpoint", "torch.distributed.fsdp",
         "torch.testing._internal.distributed.fake_pg"])
    chosen = sorted(path.parent.name for path in DATA.glob("*/truth.rank0"))
    chosen = [case for case in chosen if not options.only or case in options.only]
    limits = {c: next(r["limit"] for r in rows((DATA / c / "truth.rank0").read_text()) if "limit" in r) for c in chosen}
    found = {case: [] for case in chosen}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(outcome, case, words, limits[case], place / "said"): (case, words)
                   for words in (*CHANGES, *TOGETHER, *LEAST_EACH) for case in chosen if case in ONLY.get(words, chosen)}
        for done in concurrent.futures.as_completed(waiting):
            case, words = waiting[done]
            with contextlib.suppress(Exception):  # one run must not keep the others' outcomes back
                if done.result():
                    found[case].append(done.result())
                    lines = [json.dumps(one) + "\n" for one in sorted(found[case], key=lambda one: one["change"])]
                    (place / f"{case}.jsonl").write_text("".join(lines))
    print({case: len(lines) for case, lines in found.items()})


if __name__ == "__main__":
    main()
