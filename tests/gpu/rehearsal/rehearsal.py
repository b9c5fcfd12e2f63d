"""Holds rehearsals on one GPU against real runs of two ranks, and against formulas for other world sizes.

    python tests/gpu/rehearsal/rehearsal.py [--only NAME]… [--workers N] [--out DIR]
    python tests/gpu/rehearsal/rehearsal.py --real …    on two GPUs: against real runs made for it, see real.py

The jobs are those of tests/data: rehearsed as rank 0 and rank 1 of 2 by `shardledger rehearse`, each writes
torch.cuda.memory_stats down again, and of every step the peaks and ends of requested, allocated, active and reserved bytes are
compared with what the real run wrote down. Then the ledger of the rehearsal is compared with the rehearsal's own statistics.
Writes rehearsal.md and rehearsal.json; exits 1 when a byte differs that no cause in EXPECTED explains.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GPU_TESTS = Path(__file__).resolve().parents[1]
ROOT = GPU_TESTS.parents[1]
DATA = ROOT / "tests" / "data"
sys.path.insert(0, str(GPU_TESTS))

from checks.truth import QUANTITIES  # noqa: E402
from checks.variants import SMALL  # noqa: E402
from matrix.processes import PROCESSES  # noqa: E402

COMMAND = Path(os.environ.get("SHARDLEDGER_BUILD_DIR") or ROOT / "build" / "release").resolve() / "bin" / "shardledger"
ALL_STEPS = 1_000_000  # the job ends by itself
FIGURES = tuple(f"{quantity}_{when}" for when in ("peak", "end") for quantity in QUANTITIES)

# What a rehearsal can't have, by job: why. Such a row is shown, and fails nothing.
EXPECTED = {
    "checkpoint-dcp": "a checkpoint of one rank's part is planned without the other's plan",
}


@dataclasses.dataclass
class Case:
    """A recorded run, and how its job is started again."""

    name: str
    recorded: Path
    script: str
    options: list
    environment: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Row:
    case: str
    job: str
    rank: int
    steps: int = 0
    compared: int = 0
    equal: int = 0
    ledger_compared: int = 0
    ledger_equal: int = 0
    differences: list = dataclasses.field(default_factory=list)  # (step, figure, recorded, rehearsed)
    error: str = ""


def reference_cases():
    mixed = ["--mixed-precision"]
    for name, options in (
        ("fsdp2-2rank", [*SMALL, "--sequence", 256]),  # so it was recorded; the last one counts
        ("fsdp2-2rank-mixed-precision", [*SMALL, *mixed]),
        ("fsdp2-2rank-recompute", [*SMALL, *mixed, "--recompute"]),
        ("fsdp2-2rank-long", ["--steps", 45, "--layers", 3, "--width", 512]),
    ):
        yield Case(name, DATA / name, "fsdp2_train.py", [str(option) for option in options])


def matrix_cases():
    """The jobs in the order in which they were recorded: what one leaves behind is in the next one's reserved bytes."""
    for process in PROCESSES:
        recorded = DATA / "matrix" / process.name
        if not (recorded / "truth.rank0").exists() or len(process.quantities) < len(QUANTITIES):
            continue
        jobs = dict.fromkeys(row["job"] for row in read(recorded / "truth.rank0"))
        yield Case(
            process.name, recorded, process.script, ["--jobs", ",".join(jobs), *process.options], dict(process.environment)
        )


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rehearse(case, place, world, ranks):
    """Runs it; the truth files and the run directory lie in place."""
    place.mkdir(parents=True)
    command = [
        COMMAND,
        "rehearse",
        "--world-size",
        str(world),
        "--rank",
        ranks,
        "--steps",
        str(ALL_STEPS),
        "-o",
        place / "run",
        "--",
        sys.executable,
        GPU_TESTS / case.script,
        *case.options,
        "--truth",
        place / "truth",
    ]
    with open(place / "log.txt", "w") as log:
        done = subprocess.run(
            list(map(str, command)), cwd=place, env={**os.environ, **case.environment}, stdout=log, stderr=subprocess.STDOUT
        )
    return done.returncode


def steps_of(rows):
    """{(job, step): figures} of a truth file; the reference workload has one job without a name."""
    return {(row.get("job", ""), row["step"]): row for row in rows if "requested_peak" in row}


def compare(case, place, rank, status):
    """A Row for each job of a rank."""
    recorded = read(case.recorded / f"truth.rank{rank}")
    rehearsed = read(place / f"truth.rank{rank}")
    want, got = steps_of(recorded), steps_of(rehearsed)
    errors = {
        row.get("job", ""): str(row.get("error") or row.get("skipped")) for row in rehearsed if "error" in row or "skipped" in row
    }
    rows = {job: Row(case.name, job or case.name, rank) for job, _ in want}
    for (job, step), figures in want.items():
        row, mine = rows[job], got.get((job, step))
        row.steps += 1
        for figure in FIGURES:
            row.compared += 1
            if mine is not None and mine[figure] == figures[figure]:
                row.equal += 1
            else:
                row.differences.append((step, figure, figures[figure], mine and mine[figure]))
    for job, row in rows.items():
        row.error = errors.get(job, "") or (f"exit status {status}" if status else "")
    compare_ledger(place, rank, got, rows)
    return list(rows.values())


def compare_ledger(place, rank, truth, rows):
    """The ledger's own figures of the rehearsed steps, by time, as matrix/compare.py does."""
    ledger = place / "run" / "ledger.sqlite"
    if not ledger.exists():
        return
    with sqlite3.connect(ledger) as db:
        columns = ", ".join(f"peak_{quantity}_bytes" for quantity in QUANTITIES)
        steps = db.execute(f"SELECT start_ns, step, {columns} FROM step WHERE rank = ? ORDER BY step", (rank,)).fetchall()
    for number, ((job, _), figures) in enumerate(truth.items()):
        if job not in rows:
            continue
        if "since_ns" in figures:
            mine = [step for step in steps if figures["since_ns"] <= step[0] <= figures["end_ns"]]
        else:
            mine = [step for step in steps if step[1] == number]
        for place_in_row, quantity in enumerate(QUANTITIES):
            rows[job].ledger_compared += 1
            rows[job].ledger_equal += (
                bool(mine) and max(step[2 + place_in_row] or 0 for step in mine) == figures[f"{quantity}_peak"]
            )


# ---- other world sizes ----

# The reference workload: a GPT of 8 blocks, width 1024, bf16.
SIZES = (1, 2, 4, 7, 8, 16, 64, 256, 512)


def shard_bytes(world, width=1024, layers=8, vocabulary=32000):
    """What rank 0 has of each parameter: the first part of its rows, by torch.chunk; two bytes a number."""
    block = [
        (width, 1),
        (width, 1),
        (3 * width, width),
        (3 * width, 1),
        (width, width),
        (width, 1),
        (width, 1),
        (width, 1),
        (4 * width, width),
        (4 * width, 1),
        (width, 4 * width),
        (width, 1),
    ]
    shapes = [(vocabulary, width), (vocabulary, width), *(layers * block)]
    return 2 * sum(-(-rows // world) * columns for rows, columns in shapes)


def sizes(place, pool):
    """{world: figures of the last step}."""

    def one(world):
        case = Case(f"world-{world}", place, "fsdp2_train.py", ["--steps", "3"])
        rehearse(case, place / f"world-{world}", world, "0")
        rows = read(place / f"world-{world}" / "truth.rank0")
        return world, rows[-1] if rows else None

    return [pool.submit(one, world) for world in SIZES]


def size_lines(found):
    """At a step's end what scales is alive four times: parameters, gradients, and AdamW's two. The rest is the same for all."""
    lines, wrong = [], 0
    rest = {world: row["requested_end"] - 4 * shard_bytes(world) for world, row in found.items() if row}
    common = rest.get(2, next(iter(rest.values()), 0))  # while the one of 2 has not ended, any
    for world in SIZES:
        row = found.get(world)
        if row is None:
            lines.append(f"| {world} | – | – | – | broke off |")
            wrong += 1
            continue
        off = rest[world] - common
        wrong += bool(off)
        lines.append(
            f"| {world} | {row['requested_peak']:,} | {row['reserved_peak']:,} | {row['requested_end']:,} | {off:+,} |"
        )
    return lines, wrong


# ---- the report ----


def table(rows, found, seconds):
    rows = sorted(rows, key=lambda row: (row.case, row.job, row.rank))
    exact = [row for row in rows if row.steps and row.equal == row.compared and not row.error]
    compared, equal = sum(row.compared for row in rows), sum(row.equal for row in rows)
    lines = [
        f"{len(exact)} of {len(rows)} rehearsals (a job as one rank) equal the real run in every step: {equal:,} of {compared:,} "
        f"peaks and ends, in {seconds:.0f} s.",
        "",
        "| run | job | rank | steps | equal | ledger | differences |",
        "| --- | --- | ---: | ---: | --- | --- | --- |",
    ]
    for row in rows:
        words = row.error or "; ".join(
            f"step {step} {figure} {'–' if mine is None else f'{mine - want:+,}'}"
            for step, figure, want, mine in row.differences[:4]
        )
        if row.job in EXPECTED and words:
            words += f" ({EXPECTED[row.job]})"
        lines.append(
            f"| {row.case} | {row.job} | {row.rank} | {row.steps} | {row.equal} of {row.compared} | "
            f"{row.ledger_equal} of {row.ledger_compared} | {words} |"
        )
    size_rows, wrong_sizes = size_lines(found) if found else ([], 0)
    if size_rows:
        lines += [
            "",
            "| ranks | requested peak | reserved peak | requested end | off 4 × shards + 2 ranks' rest |",
            "| ---: | ---: | ---: | ---: | ---: |",
            *size_rows,
        ]
    bad = [row for row in rows if row not in exact and row.job not in EXPECTED]
    bad_ledger = [row for row in rows if row.ledger_equal < row.ledger_compared]
    return "\n".join(lines) + "\n", bool(bad or bad_ledger or wrong_sizes)


def main():
    if "--real" in sys.argv[1:]:
        import real

        return real.main([argument for argument in sys.argv[1:] if argument != "--real"])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only this recorded run, or 'sizes' (repeat it for more)"
    )
    p.add_argument("--workers", type=int, default=12, help="rehearsals at a time (12)")
    p.add_argument(
        "--out",
        type=Path,
        default=Path(os.environ.get("OUT") or "."),
        metavar="DIR",
        help="where the tables go ($OUT, else here)",
    )
    p.add_argument("--keep", type=Path, metavar="DIR", help="keep run directories and output there")
    p.add_argument("--list", action="store_true", help="name the recorded runs and exit")
    options = p.parse_args()
    cases = [*reference_cases(), *matrix_cases()]
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    with_sizes = not options.only or "sizes" in options.only
    cases = [case for case in cases if not options.only or case.name in options.only]
    work = options.keep or Path(tempfile.mkdtemp(prefix="shardledger-rehearsal-"))
    options.out.mkdir(parents=True, exist_ok=True)
    begin, rows, found, ok = time.monotonic(), [], {}, True

    def run(case):
        status = rehearse(case, work / case.name, 2, "0-1")
        return [row for rank in (0, 1) for row in compare(case, work / case.name, rank, status)]

    def write():
        text, failed = table(rows, found, time.monotonic() - begin)
        (options.out / "rehearsal.md").write_text(text)
        (options.out / "rehearsal.json").write_text(
            json.dumps({"rows": [dataclasses.asdict(row) for row in rows], "sizes": found})
        )
        return text, failed

    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
        # The one with the most jobs first, so that it is not the last to end; sizes are short.
        cases.sort(key=lambda case: -len(case.options[1].split(",")) if case.options[0] == "--jobs" else 0)
        running = {pool.submit(run, case): case for case in cases}
        scaled = sizes(work, pool) if with_sizes else []
        for future in concurrent.futures.as_completed([*running, *scaled]):
            if future in running:
                try:
                    rows += future.result()
                except Exception as error:  # noqa: BLE001
                    rows.append(Row(running[future].name, "", 0, error=f"{type(error).__name__}: {error}"))
            else:
                world, row = future.result()
                found[world] = row
            text, failed = write()
            print(
                f"{time.monotonic() - begin:4.0f} s  {running[future].name if future in running else f'world {world}'}",
                file=sys.stderr,
                flush=True,
            )
            ok = not failed
    print(text, end="")
    if not options.keep:
        shutil.rmtree(work, ignore_errors=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
