"""Runs the jobs of jobs.py under `shardledger run` on one GPU, several at a time, and holds their ledgers against PyTorch.

    python tests/gpu/life/life.py [--only NAME]… [--record DIR] [--jobs N]     on a machine with a GPU
    python tests/gpu/life/life.py --compare DIR                               recorded runs, anywhere

One line a job: what was compared, and what differs. Exits 1 when a figure differs by a byte. --record keeps each run, its
logs packed, with what PyTorch said in truth.jsonl.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(Path(__file__).resolve().parent))
COMMAND = Path(os.environ.get("SHARDLEDGER_BUILD_DIR") or ROOT / "build" / "release").resolve() / "bin" / "shardledger"
QUANTITIES = ("requested", "allocated", "active", "reserved")
UNATTRIBUTED = 0.001  # of a period's peak, at most


def run(name, place):
    """Records the job in place/name; its truth is what it printed."""
    place.mkdir(parents=True, exist_ok=True)
    out = place / name
    job = [sys.executable, str(Path(__file__).resolve().parent / "jobs.py"), name]
    done = subprocess.run([COMMAND, "run", "-o", out, "--", *job], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"what"')]
    out.mkdir(exist_ok=True)
    (out / "truth.jsonl").write_text("".join(line + "\n" for line in lines))
    (out / "said.txt").write_text(done.stdout[-4000:] + done.stderr[-4000:])
    (out / "ledger.sqlite").unlink(missing_ok=True)
    return out


class Told:
    """A run's ledger and what PyTorch said."""

    def __init__(self, out, scratch):
        self.lines = [json.loads(line) for line in (out / "truth.jsonl").read_text().splitlines()]
        ledger = Path(scratch) / f"{out.name}.sqlite"
        subprocess.run([COMMAND, "ingest", out, "-o", ledger], check=True, capture_output=True)
        self.db = sqlite3.connect(ledger)

    def one(self, sql, *values):
        row = self.db.execute(sql, values).fetchone()
        return row[0] if row else None

    def rows(self, sql, *values):
        return self.db.execute(sql, values[0] if values and isinstance(values[0], dict) else values).fetchall()


def life_differs(told):
    """The highest point of the life, in each quantity, to the byte."""
    for quantity in QUANTITIES:
        truth = max(line[f"{quantity}_peak"] for line in told.lines)
        ledger = told.one(f"SELECT peak_{quantity}_bytes FROM life")
        if truth != ledger:
            yield f"{quantity} peak of the life: PyTorch {truth:,}, ledger {ledger:,}"


def periods_differ(told):
    """Each stretch between two lines: its peak is at least that of the periods within, and at most that of those it meets."""
    before = 0
    for line in told.lines:
        for quantity in QUANTITIES:
            inside, around = told.rows(
                f"SELECT max(peak_{quantity}_bytes) FILTER (WHERE start_ns >= :a AND end_ns <= :b),"
                f" max(peak_{quantity}_bytes) FILTER (WHERE end_ns >= :a AND start_ns <= :b) FROM period", {"a": before, "b": line["ns"]})[0]
            if not (inside or 0) <= line[f"{quantity}_peak"] <= (around or 0):
                yield f"{quantity} peak until '{line['what']} {line.get('step', '')}': PyTorch {line[f'{quantity}_peak']:,}, ledger {inside} to {around}"
        before = line["ns"]


def steps_differ(name, told):
    """As many steps as iterations, one in each, and one in which the job died; a loop without an optimizer ends them where the
    next one begins."""
    truth = [line for line in told.lines if line["what"] == "step"]
    steps = told.rows("SELECT step, end_ns FROM step ORDER BY step")
    if len(truth) + sum("in_step" in line for line in told.lines) != len(steps):
        yield f"{len(truth)} iterations, {len(steps)} steps"
    elif name != "sharded-by-hooks" and any(end_ns > line["ns"] for line, (_, end_ns) in zip(truth, steps)):
        yield "a step ends after its iteration"


def unattributed(told):
    for place, share in told.rows(
            "SELECT p.place, sum(c.bytes) * 1.0 / q.peak_allocated_bytes AS share FROM category_at_peak c JOIN period q USING (rank, period)"
            " JOIN period_place p USING (rank, period) WHERE category = 'unattributed' GROUP BY c.period HAVING share > ?", UNATTRIBUTED):
        yield f"{share:.1%} of the peak has no owner {place}"


def at_life_peak(told, where):
    return told.one(f"SELECT coalesce(sum(o.bytes), 0) FROM life l JOIN period p USING (rank) JOIN peak_owner o ON o.rank = l.rank"
                    f" AND o.period = coalesce(p.same_as, p.period) WHERE p.period = l.peak_period AND ({where})")


def at_steps_peak(told, where):
    """The least of all steps after the first."""
    return told.one(f"SELECT min(bytes) FROM (SELECT s.step, (SELECT coalesce(sum(o.bytes), 0) FROM peak_owner o WHERE o.rank = s.rank"
                    f" AND o.step = coalesce(s.same_as, s.step) AND ({where})) AS bytes FROM step s WHERE s.step > 0)")


def at_refusal(told, where):
    return told.one(f"SELECT sum(bytes) FROM oom_owner WHERE at_ns = (SELECT max(at_ns) FROM oom) AND ({where})") or 0


def line_of(told, what):
    return next(line for line in told.lines if line["what"] == what)


def growth(told):
    return dict(told.rows("SELECT category || coalesce('/' || detail, ''), sum(bytes) FROM owner_growth"
                          " WHERE births >= 2 AND late_births >= 1 AND bytes > 0 GROUP BY 1"))


def grown(told):
    """From the end of the third step to that of the last."""
    ends = [line["allocated_end"] for line in told.lines if line["what"] == "step"]
    return ends[-1] - ends[2]


def grown_by_call(told):
    """From the end of the third request to that of the last."""
    ends = [line["allocated_end"] for line in told.lines if line["what"] == "request"]
    return ends[-1] - ends[2]


def owners_differ(name, told):
    """The owner that the job names has the bytes that it counted."""
    kind = told.one("SELECT kind FROM life_peak")
    if name == "load-spike":
        yield from () if kind in ("setup", "between") else (f"the peak is in {kind}",)
        yield from () if at_life_peak(told, "category = 'program'") > 0.4 * told.one("SELECT peak_allocated_bytes FROM life") else ("the uploaded state is not the program's",)
    elif name == "evaluation":
        kept = line_of(told, "evaluation")["kept_bytes"]
        found = at_life_peak(told, "category = 'program' AND detail = 'output'")
        yield from () if kind == "between" and found >= kept * 7 // 8 else (f"outputs {found:,} of {kept:,}, peak in {kind}",)  # the eighth is being made then
    elif name == "evaluation-oom":
        kept = line_of(told, "died")["kept_bytes"]
        found = at_refusal(told, "category = 'program'")
        yield from () if found >= kept else (f"outputs {found:,} of {kept:,} at the refusal",)
    elif name == "first-adamw-oom":
        made, gradients = line_of(told, "died")["optstate_bytes"], line_of(told, "before")["gradient_bytes"]
        for category, truth in (("optstate", made), ("gradient", gradients)):
            found = at_refusal(told, f"category = '{category}'")
            yield from () if found >= truth else (f"{category} {found:,} of {truth:,} at the refusal",)
    elif name == "offload":
        line = told.lines[-2]
        for category, truth in (("param", line["param_bytes"]), ("optstate", line["optstate_bytes"])):
            found = at_steps_peak(told, f"category = '{category}'")
            yield from () if found >= truth else (f"{category} {found:,} of {truth:,} in a step",)
    elif name in ("ema", "sharded-by-hooks"):
        truth = told.lines[-1]["copy_bytes" if name == "ema" else "master_bytes"]
        found = at_steps_peak(told, "category = 'program'")
        yield from () if found >= truth else (f"program {found:,} of {truth:,}",)
        if name == "sharded-by-hooks":  # a hook makes a gradient of each master's size; the last step is never ended
            made = told.one("SELECT min(bytes) FROM (SELECT (SELECT coalesce(sum(a.bytes), 0) FROM allocation a WHERE a.rank = s.rank"
                            " AND a.step = coalesce(s.same_as, s.step) AND a.category = 'gradient') AS bytes FROM step s"
                            " WHERE s.step < (SELECT max(step) FROM step))")
            yield from () if made >= truth else (f"gradients {made:,} of {truth:,}",)
    elif name == "server":
        pool = line_of(told, "loaded")["pool_bytes"]
        found = at_life_peak(told, "category = 'program'")
        yield from () if kind == "whole" and found >= pool else (f"pool {found:,} of {pool:,}, in {kind}",)
    elif name == "server-leak":
        total, truth = told.one("SELECT sum(bytes) FROM owner_growth_by_call"), grown_by_call(told)
        grows = told.rows("SELECT category, sum(bytes) FROM owner_growth_by_call WHERE grows GROUP BY 1")
        yield from () if total == truth and grows == [("program", truth)] else (f"growth {total:,}, by owner {grows}, PyTorch {truth:,}",)
    elif name == "pinned":
        kept, found = told.lines[-1]["kept_bytes"], told.one("SELECT sum(bytes) FROM host_segment WHERE free_ns IS NULL OR free_ns > (SELECT max(end_ns) FROM step)")
        yield from () if found >= kept else (f"pinned {found:,} of {kept:,}",)
    elif name == "fsdp1":
        for line in (line for line in told.lines if line["what"] == "step"):
            found = told.one("SELECT sum(a.requested_bytes) FROM step s JOIN allocation a ON a.rank = s.rank AND a.step = coalesce(s.same_as, s.step)"
                             " WHERE s.step = ? AND a.category = 'unsharded_grad'", line["step"]) or 0
            # Flat gradients are padded to whole parts.
            yield from () if line["whole_bytes"] <= found <= line["whole_bytes"] + 512 * line["units"] else (
                f"whole gradients {found:,} of {line['whole_bytes']:,} in step {line['step']}",)
    elif name == "accumulate-oom":
        kept = line_of(told, "died")["whole_bytes"]
        found = at_refusal(told, "category = 'unsharded_grad'")
        yield from () if found >= kept else (f"whole gradients {found:,} of {kept:,} at the refusal",)
    elif name == "megatron-fsdp":
        line = told.lines[-1]
        for category, truth in (("sharded_param", line["weight_bytes"]), ("sharded_grad", line["gradient_bytes"])):
            found = at_steps_peak(told, f"category = '{category}'")
            yield from () if found >= truth else (f"{category} {found:,} of {truth:,} in a step",)
        # Buckets are gathered and freed in a step; what the optimizer reads as gradients is a part of this rank's.
        for category, there in (("unsharded_param", True), ("unsharded_grad", True), ("gradient", False)):
            found = told.one("SELECT count(*) FROM allocation WHERE step IS NOT NULL AND category = ?", category)
            yield from () if bool(found) == there else (f"{found} allocations of {category} in steps",)
        share = told.one("SELECT max(bytes * 1.0 / (SELECT sum(bytes) FROM category_at_peak d WHERE d.rank = c.rank AND d.period = c.period))"
                         " FROM category_at_peak c WHERE step IS NOT NULL AND category = 'program'") or 0
        yield from () if share <= 0.01 else (f"{share:.1%} of a step's peak is the program's own",)
    elif name == "lightning":
        found, truth = sum(growth(told).values()), grown(told)
        yield from () if truth and abs(found - truth) <= 0.05 * truth else (f"owners that grow {growth(told)}, PyTorch {truth:,}",)
    elif name.startswith("leak-"):
        total, truth = told.one("SELECT sum(bytes) FROM owner_growth"), grown(told)
        found = sum(growth(told).values())
        if total != truth:
            yield f"growth {total:,}, PyTorch {truth:,}"
        if name == "leak-none" and found:
            yield f"a leak where there is none: {growth(told)}"
        if name != "leak-none" and (not found or abs(found - truth) > max(512 * 24, 0.05 * truth)):
            yield f"owners that grow {growth(told)}, PyTorch {truth:,}"


def check(name, out):
    with tempfile.TemporaryDirectory() as scratch:
        told = Told(out, scratch)
        if not told.lines or "allocated_peak" not in told.lines[0]:
            return [f"the job said nothing of memory: {(out / 'said.txt').read_text()[-300:] if (out / 'said.txt').exists() else ''}"]
        found = [*life_differs(told), *periods_differ(told), *unattributed(told), *owners_differ(name, told)]
        if any(line["what"] == "step" for line in told.lines):
            found += steps_differ(name, told)
        with contextlib.closing(told.db):
            return found


def record(out, target):
    """The run as it goes into tests/data: its logs as they are sealed, and the truth."""
    kept = target / out.name
    shutil.copytree(out, kept, ignore=shutil.ignore_patterns("ledger.sqlite*", "said.txt"))


def main():
    import jobs
    import libraries

    every = sorted(jobs.JOBS | libraries.JOBS)
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", action="append", choices=every)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--jobs", type=int, default=9)
    options = parser.parse_args()
    names = options.only or every
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        place = options.compare or options.record or Path(scratch)
        if options.compare:
            missing = {name: "not recorded" for name in libraries.JOBS if not (place / name).is_dir()}
        else:
            missing = libraries.MISSING
        for name in [name for name in names if name in missing]:
            print(f"{name:20} skipped: {missing[name]}")
        names = [name for name in names if name not in missing]
        if not options.compare:
            with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
                list(pool.map(lambda name: run(name, place), names))
        for name in names:
            try:
                found = check(name, place / name)
            except Exception as error:  # a job that could not be compared has failed; the others go on
                found = [f"not compared: {error!r}"]
            failed += bool(found)
            print(f"{name:20} " + ("agrees with PyTorch" if not found else "; ".join(found)), flush=True)
    print(f"{len(names) - failed} of {len(names)} jobs agree")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
