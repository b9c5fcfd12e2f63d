"""Recorded training loops whose idle memory is known, against PyTorch's own telling of the same steps (idle_job.py)."""

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import idle_compare  # noqa: E402
from compare import ledger_of  # noqa: E402

RUNS = Path(__file__).resolve().parents[3] / "tests" / "data" / "code" / "idle"


def compare(name, tmp_path, change=lambda truth: None):
    truth = json.loads((RUNS / name / "truth.json").read_text())
    change(truth)
    changed = tmp_path / "truth.json"
    changed.write_text(json.dumps(truth))
    return {check: (passed, detail) for check, passed, detail in idle_compare.compare(run_of(name, tmp_path), changed)}


def run_of(name, tmp_path):
    return shutil.copytree(RUNS / name, tmp_path / "run", ignore=shutil.ignore_patterns("truth.json"))


@pytest.mark.parametrize("name", ["loop", "all", "compiled"])
def test_late_and_early_memory_is_what_pytorch_itself_tells(name, tmp_path):
    results = compare(name, tmp_path)
    assert list(results) == ["idle", "again"] and all(passed for passed, _ in results.values()), results


def test_without_cupti_the_same_is_said_to_be_hidden(tmp_path):
    results = compare("off", tmp_path)
    assert list(results) == ["hidden", "again"] and all(passed for passed, _ in results.values()), results


def lose_one(truth):
    truth["idle"].pop()


def move_one(truth):
    truth["idle"][0][2][1] += 1


def resize_one(truth):
    truth["idle"][0][1] *= 2


def swap_states(truth):
    for row in truth["idle"]:
        row[0] = "early" if row[0] == "late" else "late"


@pytest.mark.parametrize("change", [lose_one, move_one, resize_one, swap_states])
def test_a_difference_is_found(change, tmp_path):
    assert not compare("loop", tmp_path, change)["idle"][0]


@pytest.mark.parametrize("change", [lose_one, move_one, resize_one])
def test_a_difference_is_found_in_what_is_hidden(change, tmp_path):
    assert not compare("off", tmp_path, change)["hidden"][0]


def test_what_the_step_before_left_behind_is_late_too(tmp_path):
    """gpt: its loop lets the logits go after the optimizer's step, between two steps. PyTorch's telling has what was made within its
    two steps; the ledger those of the step before as well, which are alive at the peak, of the same line and size."""
    truth, = json.loads((RUNS / "gpt" / "truth.json").read_text())["idle"]
    state, size, line = truth[0], truth[1], tuple(truth[2])
    db = ledger_of(run_of("gpt", tmp_path), tmp_path)
    rows = idle_compare.recorded(db)
    assert [row for row in rows if row[0] != "kept"] == [(state, size, line)] * 2, rows


def test_pytorchs_history_gives_lines_to_the_first_steps_and_by_them_to_all(tmp_path):
    db = ledger_of(run_of("history", tmp_path), tmp_path)
    lines = dict(db.execute("SELECT line, sum(bytes) FROM line_at_peak WHERE step = 3 AND file LIKE '%idle_job.py' GROUP BY line"))
    assert {idle_compare.line_of("self.outputs ="), idle_compare.line_of("logits ="), idle_compare.line_of("scratch =")} <= set(lines)
    assert lines[idle_compare.line_of("logits =")] == 8 << 20
    assert db.execute("SELECT count(*) FROM use_window").fetchone() == (0,)
