"""Takes the advice: each case of job.py runs out of memory, is asked about, and runs again under the same limit as advised.

    python tests/gpu/advice/run.py DIR [--jobs N] [--only CASE]…

DIR/CASE/before and DIR/CASE/after get the logs with truth.rank0, what PyTorch said; DIR/CASE/advice.json is what 'shardledger
advise --json' said of the first one, and DIR/CASE/outcome.json what came of it. Where nothing is said to be enough, everything is
tried: DIR/CASE/outcome.json has each. Limits are found out by runs without one, which are not kept.
"""

import argparse
import concurrent.futures
import csv
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
COMMAND = Path(os.environ.get("SHARDLEDGER_BUILD_DIR") or ROOT / "build" / "release").resolve() / "bin" / "shardledger"
MIB = 1 << 20
ALLOC, CUBLAS = "PYTORCH_CUDA_ALLOC_CONF", {"CUBLAS_WORKSPACE_CONFIG": ":0:0", "CUBLASLT_WORKSPACE_SIZE": "0"}

# What a change of storage/advise/candidates.def is here: options of the job, and its environment. None: this job can't have it.
CHANGES = {
    "leak": (["--keep-nothing"], {}),
    "kept_outputs": (["--keep-nothing"], {}),
    "expandable_segments": ([], {ALLOC: "expandable_segments:True"}),
    "adamw_fused": (["--optimizer", "adamw-fused"], {}),
    "adamw_forloop": (["--optimizer", "adamw-forloop"], {}),
    "other_processes": None,
    "reshard": None,
    "gradient_sync": (["--sync"], {}),
    "no_workspaces": ([], CUBLAS),
    "loss": (["--loss-chunks", "8"], {}),
    "optimizer_in_backward": (["--optimizer", "in-backward"], {}),
    "recompute": (["--recompute"], {}),
    "offload_optimizer": (["--optimizer", "host"], {}),
    "batch": (["--part", "2"], {}),
    "sgd": (["--optimizer", "sgd"], {}),
}
# How a limit is found: from what 'whatif' says of a run without one (the changes that shall be enough, as it has them), or from
# what a run with a change reserves (times so much, and so many bytes).
LIMITS = {
    "fragmented": ("whatif", ["--alloc-conf", "expandable_segments:True"]),
    "temporaries": ("whatif", ["--optimizer", "adamw-fused"]),
    "both": ("whatif", ["--optimizer", "adamw-fused", "--alloc-conf", "expandable_segments:True"]),
    "grows": ("part", [], 0.85, 0),
    "sharded": ("part", [], 0.7, 0),
    "long-loss": ("part", ["--loss-chunks", "8"], 1.05, 0),
    "leak": ("part", ["--keep-nothing"], 1.0, 40 * MIB),
    "accumulate": ("part", ["--sync"], 1.03, 0),
}
ONCE_EACH = ("expandable_segments", "adamw_fused", "adamw_forloop", "sgd", "no_workspaces", "optimizer_in_backward")


def rows(out):
    return [json.loads(line) for line in (out / "truth.rank0").read_text().splitlines()]


def run(case, out, options=(), environment=None, recorded=True):
    """The job, recorded; what it said is out/truth.rank0."""
    job = [sys.executable, str(HERE / "job.py"), case, *options]
    command = [str(COMMAND), "run", "-o", str(out), "--", *job] if recorded else job
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})}, timeout=150)
    out.mkdir(parents=True, exist_ok=True)
    (out / "truth.rank0").write_text("".join(line + "\n" for line in done.stdout.splitlines() if line.startswith('{"')))
    if not rows(out):
        (out / "said.txt").write_text(done.stdout[-3000:] + done.stderr[-3000:])
    for ledger in out.glob("*.sqlite*"):
        ledger.unlink()
    return rows(out)


def ask(*arguments):
    return subprocess.run([str(COMMAND), *map(str, arguments)], capture_output=True, text=True)


def ends(run_directory, limit, options=()):
    """How 'whatif' says that a run ends under a limit."""
    said = ask("whatif", run_directory, "--memory-limit", limit, *options, "--csv").stdout
    return {row["ends"] for row in csv.DictReader(io.StringIO(said))}


def whatif_limit(free, fix):
    """The largest limit, in whole 2 MiB, at which it surely runs out, but not with the fix."""
    low, high = 0, max(row.get("reserved_peak", 0) for row in rows(free)) // (2 * MIB)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if ends(free, middle * 2 * MIB) == {"out of memory"} else (low, middle)
    return low * 2 * MIB, sorted(ends(free, low * 2 * MIB, fix))


def limit_of(case, place):
    """Bytes (0: the case's own), and what it was found by."""
    if case not in LIMITS:
        return 0, {}
    how, *rest = LIMITS[case]
    if how == "whatif":
        run(case, place / "free")
        limit, fixed = whatif_limit(place / "free", rest[0])
        return limit, {"fix": " ".join(rest[0]), "fix_ends": fixed}
    options, times, more = rest
    reserved = max((row.get("reserved_peak", 0) for row in run(case, place / "free", options, recorded=False)), default=0)
    return int(reserved * times) + more, {"of": " ".join(options), "reserved": reserved}


def apply(words):
    """The options and the environment of an advice; None: the job can't have it."""
    options, environment = [], {}
    for word in words.split("+"):
        if CHANGES[word] is None:
            return None
        options += CHANGES[word][0]
        environment |= CHANGES[word][1]
    return options, environment


def outcome_of(truth):
    end = next((row["end"] for row in truth if "end" in row), "no words")
    retries = max((row.get("retries", 0) for row in truth), default=0)
    return {"end": end, "steps": sum("step" in row for row in truth), "retries": retries}


def measured(truth, goal):
    """The highest of the steps that the advice's figures are of."""
    first, last = goal["from_step"] or 0, goal["step"]
    chosen = [row for row in truth if last is not None and first <= row.get("step", -1) <= last]
    return {q: max((row.get(f"{q}_peak", 0) for row in chosen), default=None) for q in ("requested", "allocated", "reserved")}


def try_all(case, place, limit):
    """Each change that the job can have, and some together: how each ends."""

    def end(words):
        options, environment = apply(words)
        truth = run(case, place / "tried" / words, [*options, "--limit", str(limit)], environment, recorded=False)
        return words, outcome_of(truth)["end"]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return dict(pool.map(end, (*ONCE_EACH, "adamw_fused+expandable_segments", "adamw_fused+no_workspaces")))


def take(case, place):
    """One case, to its outcome."""
    began = time.monotonic()
    limit, found = limit_of(case, place)
    before = run(case, place / "before", ["--limit", str(limit)] if limit else [])
    limit = next((row["limit"] for row in before if "limit" in row), limit)
    said = ask("advise", place / "before", "--json")
    (place / "advice.json").write_text(said.stdout)
    (place / "advice.txt").write_text(ask("advise", place / "before").stdout + said.stderr)
    result = {"case": case, "limit": limit, "limit_by": found, "before": outcome_of(before)}
    if said.returncode == 0:
        answer = json.loads(said.stdout)
        first, goal = (answer["advice"] or [{"advice": "", "fits": "no"}])[0], answer["goal"][0]
        if first["fits"] in ("no", "hardly", "refused") or goal["suffices"] != "something":
            result |= {"advice": "nothing", "tried": try_all(case, place, limit)}
        else:
            applied = apply(first["advice"])
            result |= {"advice": first["advice"], "fits": first["fits"], "applied": applied and applied[0]}
            if applied:
                after = run(case, place / "after", [*applied[0], "--limit", str(limit)], applied[1])
                result |= {"after": outcome_of(after), "measured": measured(after, goal)}
    result["seconds"] = round(time.monotonic() - began, 1)
    (place / "outcome.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("place", type=Path)
    parser.add_argument("--jobs", type=int, default=7)
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    from job import CASES

    chosen = [case for case in CASES if not options.only or case in options.only]
    for case in chosen:
        (options.place / case).mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(take, case, options.place / case): case for case in chosen}
        for done in concurrent.futures.as_completed(waiting):
            try:
                print(json.dumps(done.result()), flush=True)
            except Exception as error:  # one case must not keep the others' outcomes back
                print(json.dumps({"case": waiting[done], "failed": repr(error)}), flush=True)


if __name__ == "__main__":
    main()
