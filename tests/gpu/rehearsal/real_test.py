"""The proof against real runs can fail: it is given truth files that are equal, then ones that are wrong in one."""

import json
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

import real  # noqa: E402
from checks.truth import QUANTITIES  # noqa: E402

JOB = real.Job("bf16", "matrix/job.py", [])


def write(folder, change=lambda rows: None, error=None):
    folder.mkdir(exist_ok=True)
    rows = [{"step": step, "end_ns": 1, **{f"{q}_{when}": 1000 * step for q in QUANTITIES for when in ("peak", "end")}}
            for step in range(3)]
    change(rows)
    if error:
        rows.append({"error": error})
    (folder / "truth.rank0").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def more(step, figure, size=1):
    def change(rows):
        rows[step][figure] += size

    return change


@pytest.fixture
def run(tmp_path):
    return write(tmp_path / "real")


def test_equal_runs_are_equal(tmp_path, run):
    row = real.compare(JOB, 0, run, write(tmp_path / "rehearsed"))
    assert (row.steps, row.equal, row.compared, row.exact, row.wrong) == (3, 24, 24, True, False)


def test_one_byte_is_wrong_also_where_a_second_real_run_has_the_first_ones_figure(tmp_path, run):
    rehearsed = write(tmp_path / "rehearsed", more(1, "reserved_end"))
    for second in (None, write(tmp_path / "second")):
        row = real.compare(JOB, 0, run, rehearsed, second)
        assert (row.equal, row.by_timing, row.exact, row.wrong) == (23, 0, False, True)
    assert "step 1 reserved_end +1 (2nd real run +0)" in real.table([row], {}, 1)


def test_what_two_real_runs_differ_in_is_not_exact_and_not_wrong(tmp_path, run):
    rehearsed = write(tmp_path / "rehearsed", more(1, "reserved_end"))
    row = real.compare(JOB, 0, run, rehearsed, write(tmp_path / "second", more(1, "reserved_end", 2)))
    assert (row.equal, row.by_timing, row.exact, row.wrong) == (23, 1, False, False)


def test_a_step_that_is_missing_or_a_job_that_broke_off_is_wrong(tmp_path, run):
    assert real.compare(JOB, 0, run, write(tmp_path / "short", lambda rows: rows.pop())).wrong
    assert real.compare(JOB, 0, run, write(tmp_path / "broken", error="RuntimeError: x")).wrong
    assert real.compare(JOB, 0, tmp_path / "none", write(tmp_path / "rehearsed")).wrong
    assert real.compare(JOB, 0, tmp_path / "none", tmp_path / "none").wrong


def test_jobs_have_names_of_their_own_and_scripts():
    jobs = list(real.jobs("cuda"))
    assert len({job.name for job in jobs}) == len(jobs) >= 60
    assert all((real.GPU_TESTS / job.script).exists() for job in jobs)
