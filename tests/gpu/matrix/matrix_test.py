"""The matrix can fail: its comparison is given ledgers that are right, then ones that are wrong in one place."""

import concurrent.futures
import dataclasses
import json
import sqlite3
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from checks.harness import ROOT  # noqa: E402
from checks.truth import QUANTITIES  # noqa: E402
from matrix import job, sharded, table, unsharded  # noqa: E402, F401
from matrix.compare import Row, compare_process, joined  # noqa: E402
from matrix.main import Matrix, parse, rows_of  # noqa: E402
from matrix.processes import PROCESSES, Process, selected  # noqa: E402
from matrix.registry import JOBS  # noqa: E402

sys.path.insert(0, str(ROOT / "scripts"))
from ledger_schema import empty_tables  # noqa: E402

SECOND = 10**9
PEAK, END = 2048, 1024


class Made:
    """A ledger and truth files of two jobs of two steps each, one after the other, in one rank."""

    def __init__(self, place):
        self.prefix, self.lines, self.tracked = place / "truth", [], []
        self.ledger = sqlite3.connect(":memory:")
        empty_tables(self.ledger)
        self.ledger.execute("CREATE TABLE category_at_peak(rank, step, category, bytes)")
        self.ledger.execute("CREATE TABLE fsdp_snapshot(rank, step, module_id, fqn, call, state, category, bytes)")
        self.ledger.executemany("INSERT INTO module(id, rank, fqn, root_id) VALUES(?, 0, '', ?)", [(1, 1), (2, 2)])
        for number in range(4):
            self.truth_step("ab"[number // 2], number)
            self.ledger_step(number, number * SECOND + 1000, (number + 1) * SECOND - 1000)
        for job in "ab":
            self.lines.append({"job": job, "rank": 0, "done": 1})

    def truth_step(self, job, number, peak=PEAK, end=END):
        figures = {f"{q}_{when}": size for q in QUANTITIES for when, size in (("peak", peak), ("end", end))}
        since = max(0, number * SECOND - SECOND // 2)
        times = {"since_ns": since, "start_ns": number * SECOND, "end_ns": (number + 1) * SECOND - SECOND // 2}
        self.lines.append({"job": job, "rank": 0, "step": number % 2, **times, **figures})

    def ledger_step(self, number, start_ns, end_ns, peak=PEAK, end=END):
        columns = [f"{when}_{quantity}_bytes" for when in ("peak", "end") for quantity in QUANTITIES]
        self.ledger.execute(
            f"INSERT INTO period(rank, period, kind, step, start_ns, end_ns, checked, {', '.join(columns)}) "
            f"VALUES(0, 2 * ? + 1, 'step', ?, ?, ?, 1, {', '.join('?' * len(columns))})",
            (number, number, start_ns, end_ns, *[peak] * 4, *[end] * 4),
        )
        self.ledger.execute(
            "INSERT INTO phase(rank, tid, kind, name, step, start_ns, end_ns) VALUES(0, 1, 'step', 'step', ?, ?, ?)",
            (number, start_ns, end_ns),
        )
        self.ledger.execute("INSERT INTO category_at_peak VALUES(0, ?, 'activation', ?)", (number, peak))

    def compare(self, jobs=("a", "b"), **process):
        for suffix, lines in (("", self.lines), (".tracker", self.tracked)):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            self.prefix.with_name(f"truth{suffix}.rank0").write_text(text)
        return compare_process(Process("made", jobs, **process), self.prefix, self.ledger)


@pytest.fixture
def made(tmp_path):
    made = Made(tmp_path)
    yield made
    made.ledger.close()


def test_equal_jobs_are_exact(made):
    rows = made.compare()
    assert [row.exact for row in rows] == [True, True]
    assert [(row.steps, row.equal, row.compared, row.ends_equal) for row in rows] == [(2, 8, 8, 8)] * 2
    assert all(row.attributed == 1 for row in rows)


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("when", ["peak", "end"])
def test_one_byte_fails_the_job_that_it_is_in(made, when, quantity):
    made.ledger.execute(f"UPDATE period SET {when}_{quantity}_bytes = {when}_{quantity}_bytes + 1 WHERE step = 3")
    assert [row.exact for row in made.compare()] == [True, False]


def test_the_end_counts_only_where_the_ledger_ends_its_step_there(made):
    made.ledger.execute("UPDATE period SET end_active_bytes = 0")
    assert [row.exact for row in made.compare(ends=False)] == [True, True]


def test_a_step_that_the_ledger_lacks_fails(made):
    made.ledger.execute("DELETE FROM period WHERE step = 1")
    assert [row.exact for row in made.compare()] == [False, True]


def test_a_failed_check_of_the_replay_fails(made):
    made.ledger.execute("UPDATE period SET checked = 0 WHERE step = 0")
    assert [row.exact for row in made.compare()] == [False, True]


def test_steps_that_the_ledger_sees_as_one_are_compared_as_one(made):
    made.ledger.executescript("DELETE FROM period; DELETE FROM phase; DELETE FROM category_at_peak")
    made.ledger_step(0, 1000, 4 * SECOND, peak=5000)
    assert made.compare(("a",))[0].exact is False
    made.lines[1].update({f"{quantity}_peak": 5000 for quantity in QUANTITIES})
    row = made.compare(("a",))[0]
    assert row.exact
    assert row.notes == ["2 steps of the job are 1 of the ledger's"]


def test_steps_that_the_ledger_splits_are_compared_as_one(made):
    made.ledger_step(4, SECOND + 2000, SECOND + 3000, peak=9999)
    assert made.compare()[0].exact is False
    made.lines[1].update({f"{quantity}_peak": 9999 for quantity in QUANTITIES})
    assert [row.exact for row in made.compare()] == [True, True]


def test_a_job_that_broke_off_is_an_error_and_the_next_is_compared(made):
    made.lines = [line for line in made.lines if line["job"] == "b" or "done" not in line]
    rows = made.compare(("a", "b", "c"))
    assert [row.error for row in rows] == ["broke off", "", "did not begin"]
    assert [row.exact for row in rows] == [False, True, False]


def test_a_rank_without_truth_is_an_error(made):
    made.ledger.execute("UPDATE period SET rank = 1 WHERE step > 1")
    made.ledger.execute("UPDATE phase SET rank = 1 WHERE step > 1")
    assert [row.error for row in made.compare()] == ["no truth of rank 1"] * 2


def test_a_skipped_job_is_neither_exact_nor_wrong(made):
    made.lines.append({"job": "c", "rank": 0, "skipped": "no such card"})
    assert made.compare(("c",))[0].exact is None


def test_unattributed_bytes_are_told(made):
    made.ledger.execute("UPDATE category_at_peak SET category = 'unattributed' WHERE step = 1")
    row = made.compare(("a",))[0]
    assert row.attributed == 0 and "below 99.9% attributed" in row.notes


def test_tracker_rows_are_compared_with_the_step_that_they_were_taken_in(made):
    big = 64 << 20
    made.tracked = [
        {"job": "b", "rank": 0, "step": 1, "tracker": "fsdp", "snapshots": [["M", "Peak Forward", 0, {"Temp": big, "Total": big}]]}
    ]
    made.ledger.executemany(
        "INSERT INTO fsdp_snapshot VALUES(0, ?, 1, 'M', 0, 'Peak Forward', ?, ?)",
        [(3, "Temp", big), (3, "Total", big + (2 << 20)), (1, "Temp", 0), (1, "Total", 0)],
    )
    row = made.compare(("b",))[0]
    assert (row.tracker_near, row.tracker_rows) == (1, 2)
    assert row.tracker_off == [(2 << 20, "rank 0 M Peak Forward 0 Total", big + (2 << 20), big)]
    assert "farthest from the tracker: 2.00 MiB, rank 0 M Peak Forward 0 Total" in table.line(row)


def test_only_the_trained_of_several_models_is_compared(made):
    big, other = 64 << 20, 128 << 20
    made.tracked = [
        {"job": "b", "rank": 0, "step": 1, "tracker": "fsdp", "snapshots": [["M", "Peak Forward", 0, {"Temp": big, "Total": big}]]}
    ]
    made.ledger.executemany(
        "INSERT INTO fsdp_snapshot VALUES(0, 3, ?, 'M', 0, ?, ?, ?)",
        [
            (1, "Peak Forward", "Temp", big),
            (1, "Peak Forward", "Total", big),
            (1, "Before Pre-Backward", "Temp", 0),
            (2, "Peak Forward", "Temp", other),
            (2, "Peak Forward", "Total", other),
        ],
    )
    row = made.compare(("b",))[0]
    assert (row.tracker_near, row.tracker_rows, row.tracker_off) == (2, 2, [])


def test_module_states_that_the_ledger_lacks_are_told(made):
    made.tracked = [{"job": "a", "rank": 0, "step": 1, "tracker": "fsdp", "snapshots": [["M", "Peak Forward", 0, {"Temp": 1}]]}]
    row = made.compare(("a",))[0]
    assert (row.tracker_near, row.tracker_rows) == (0, 1)
    assert "rank 0: 1 of 1 module states missing" in row.notes


def test_the_table_marks_what_is_wrong(made):
    made.ledger.execute("UPDATE period SET peak_active_bytes = 1 WHERE step = 2")
    text = table.markdown(made.compare(), "2 × GPU", 3)
    assert "1 jobs exact, 1 not, 0 skipped" in text
    assert "| made: a | 2 | 8 of 8 | 8 of 8 | 100.000% | – |" in text
    assert "| made: b | 2 | **7 of 8** |" in text and "active_peak 1 for 2048" in text


def test_every_job_runs_somewhere_and_every_process_knows_its_jobs():
    ours = {name for process in PROCESSES if process.script == "matrix/job.py" for name in process.jobs}
    assert ours == set(JOBS)
    assert len({process.name for process in PROCESSES}) == len(PROCESSES)


def test_no_job_runs_after_another_under_a_tracker():
    for process in PROCESSES:
        assert len(process.jobs) == 1 or "--no-tracker" in process.options
        assert not process.tracks or process.jobs[0] in next(p.jobs for p in PROCESSES if p.name == process.tracks)


def test_a_job_in_its_list_and_under_the_tracker_is_one_row(made):
    listed = made.compare(("a", "b"))
    made.ledger.execute("UPDATE period SET peak_active_bytes = 1 WHERE step = 0")
    tracked = made.compare(("a",), tracks="made")
    rows = joined([*listed, *tracked])
    assert [(row.job, row.steps, row.compared, row.equal, row.exact) for row in rows] == [("a", 4, 16, 15, False), ("b", 2, 8, 8, True)]


def test_a_selection_takes_jobs_and_processes():
    assert [(p.name, p.jobs) for p in selected(["mixed"])] == [("fsdp2-shapes", ("mixed",)), ("tracked-mixed", ("mixed",))]
    assert [p.name for p in selected(["max-split-size", "plain"])] == ["unsharded", "max-split-size", "tracked-plain"]
    assert [p.name for p in selected(["tracked-plain"])] == ["tracked-plain"]
    with pytest.raises(ValueError, match="nonsense"):
        selected(["nonsense"])


def test_a_process_that_breaks_off_is_started_again_for_the_rest(tmp_path, monkeypatch):
    starts = []

    def run_once(self, process, name):
        starts.append((name, process.jobs))
        errors = {"x": "broke off: the process exited 1", "b": "did not begin", "c": "did not begin"}
        errors = errors if "x" in process.jobs else {}
        return [Row(job, process.name, compared=1, equal=1, error=errors.get(job, "")) for job in process.jobs]

    monkeypatch.setattr(Matrix, "_run_once", run_once)
    matrix = Matrix(parse(["--out", str(tmp_path)]), tmp_path)
    rows = matrix.run(Process("p", ("a", "x", "b", "c")))
    assert starts == [("p", ("a", "x", "b", "c")), ("p.1", ("b", "c"))]
    assert [(row.job, row.exact) for row in rows] == [("a", True), ("x", False), ("b", True), ("c", True)]


def test_a_process_that_never_begins_a_job_is_not_started_forever(tmp_path, monkeypatch):
    monkeypatch.setattr(Matrix, "_run_once", lambda self, p, name: [Row(job, p.name, error="did not begin") for job in p.jobs])
    rows = Matrix(parse(["--out", str(tmp_path)]), tmp_path).run(Process("p", ("a", "b")))
    assert [row.exact for row in rows] == [False, False]


def test_a_process_that_fails_after_its_last_job_is_an_error_of_that_job(tmp_path, monkeypatch):
    job = tmp_path / "job.py"
    job.write_text("raise SystemExit(7)\n")
    runner = tmp_path / "shardledger"  # in place of the command: runs what comes behind --
    runner.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    runner.chmod(0o755)
    exact = [Row(name, "p", compared=1) for name in ("a", "b")]
    monkeypatch.setattr(Matrix, "_compare", lambda *_: exact)
    matrix = Matrix(parse(["--out", str(tmp_path)]), tmp_path / "work")
    matrix.harness.torchrun = lambda: [sys.executable]
    matrix.harness.command = runner
    rows = matrix.run(Process("p", ("a", "b"), script=str(job)))
    assert [row.error for row in rows] == ["", "after its last job: the process exited 7; see p.log"]


def test_a_comparison_that_breaks_is_an_error_of_its_jobs_alone():
    broken = concurrent.futures.Future()
    broken.set_exception(KeyError("step"))
    assert [row.error for row in rows_of(Process("p", ("a", "b")), broken)] == ["KeyError: 'step'"] * 2


RECORDED = sorted(path.parent for path in (ROOT / "tests" / "data" / "matrix").glob("*/truth.rank0"))


@pytest.mark.parametrize("run", RECORDED, ids=lambda run: run.name)
def test_recorded_jobs_are_exact_and_agree_with_the_trackers(run, tmp_path):
    import contextlib
    import shutil

    from checks.harness import shardledger

    like = next((p for p in PROCESSES if p.name == run.name), None)
    copy = shutil.copytree(run, tmp_path / run.name)
    if like and like.counted_by:
        shutil.copytree(run.parent / like.counted_by, tmp_path / like.counted_by)
    shardledger("ingest", copy)
    jobs = tuple(dict.fromkeys(json.loads(line)["job"] for line in (run / "truth.rank0").read_text().splitlines()))
    process = dataclasses.replace(like or Process(run.name, jobs), jobs=jobs)
    with contextlib.closing(sqlite3.connect(copy / "ledger.sqlite")) as ledger:
        for row in compare_process(process, copy / "truth", ledger):
            assert row.exact, table.line(row)
            assert row.tracker_near == row.tracker_rows, table.line(row)


def test_a_model_that_a_thread_holds_a_moment_longer_is_gone_before_the_next_job(capsys):
    earlier = {id(module) for module in job.modules()}
    model = torch.nn.Linear(2, 2)
    model.itself = [model]  # a cycle, as FSDP's
    known = weakref.ref(model)
    thread = threading.Thread(target=lambda held: (time.sleep(0.2), held), args=(model,))
    thread.start()
    del model
    job.let_go(earlier)
    assert known() is None and "left of a job" not in capsys.readouterr().err
    thread.join()


def test_a_model_that_stays_is_told_and_does_not_stop_the_next_job(capsys, monkeypatch):
    monkeypatch.setattr(job, "PATIENCE", 0.1)
    earlier = {id(module) for module in job.modules()}
    model = torch.nn.Bilinear(2, 2, 2)
    job.let_go(earlier)
    assert f"{type(model).__name__}" in capsys.readouterr().err
