"""The comparison of rehearsals can fail: it is given truth files that are the recorded ones, then ones that are wrong in one."""

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import rehearsal  # noqa: E402


def case(name):
    return next(case for case in [*rehearsal.reference_cases(), *rehearsal.matrix_cases()] if case.name == name)


@pytest.fixture
def place(tmp_path):
    """As if the rehearsal of a recorded run had said the same."""
    for rank in (0, 1):
        shutil.copy(rehearsal.DATA / "matrix" / "fsdp1" / f"truth.rank{rank}", tmp_path)
    return tmp_path


def change(path, function):
    rows = rehearsal.read(path)
    function(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_every_case_names_a_recorded_run_and_a_script():
    cases = [*rehearsal.reference_cases(), *rehearsal.matrix_cases()]
    assert len(cases) >= 25
    for one in cases:
        assert (one.recorded / "truth.rank1").exists() and (rehearsal.GPU_TESTS / one.script).exists()


def test_equal_truth_is_equal_in_every_step(place):
    rows = rehearsal.compare(case("fsdp1"), place, 1, 0)
    assert [(row.job, row.steps, row.equal, row.compared) for row in rows] == [
        ("fsdp1-orig-params", 3, 24, 24),
        ("fsdp1-flat", 3, 24, 24),
    ]
    text, failed = rehearsal.table(rows, {}, 1)
    assert not failed and "2 of 2 rehearsals" in text


def test_one_byte_fails_its_job(place):
    def more(rows):
        next(row for row in rows if row["job"] == "fsdp1-flat" and row.get("step") == 1)["reserved_end"] += 1

    change(place / "truth.rank0", more)
    rows = rehearsal.compare(case("fsdp1"), place, 0, 0)
    assert [row.equal for row in rows] == [24, 23]
    text, failed = rehearsal.table(rows, {}, 1)
    assert failed and "step 1 reserved_end +1" in text


def test_a_step_that_is_missing_fails(place):
    change(place / "truth.rank0", lambda rows: rows.remove(next(row for row in rows if row.get("step") == 2)))
    rows = rehearsal.compare(case("fsdp1"), place, 0, 0)
    assert rows[0].equal == 16 and rehearsal.table(rows, {}, 1)[1]


def test_a_job_that_broke_off_fails_though_its_steps_were_equal(place):
    assert rehearsal.table(rehearsal.compare(case("fsdp1"), place, 0, 2), {}, 1)[1]


def test_what_scales_has_to_scale_by_the_byte():
    def row(world, more=0):
        return {
            "requested_peak": 1,
            "reserved_peak": 1,
            "requested_end": 4 * rehearsal.shard_bytes(world) + 77 + more,
        }

    found = {world: row(world) for world in rehearsal.SIZES}
    assert rehearsal.size_lines(found)[1] == 0
    found[64] = row(64, 1)
    assert rehearsal.size_lines(found)[1] == 1
    found[64] = None
    assert rehearsal.size_lines(found)[1] == 1
