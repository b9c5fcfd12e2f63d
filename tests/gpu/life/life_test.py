"""Recorded jobs that are more than their steps, against what PyTorch said in them (jobs.py, life.py; one H200, torch 2.11)."""

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jobs  # noqa: E402
import libraries  # noqa: E402
import life  # noqa: E402

DATA = Path(__file__).resolve().parents[3] / "tests" / "data" / "life"


@pytest.mark.parametrize("name", sorted(jobs.JOBS | libraries.JOBS))
def test_the_ledger_of_a_whole_life_agrees_with_pytorch(name):
    if name in libraries.JOBS and not (DATA / name).is_dir():
        pytest.skip("not recorded yet: tests/gpu/life/life.py --only " + name)
    assert life.check(name, DATA / name) == []


@pytest.mark.parametrize("name, line, field, change", [
    ("evaluation", 3, "allocated_peak", 512), ("load-spike", 4, "reserved_peak", 2 << 20), ("leak-rare", -1, "allocated_end", 512),
    ("evaluation", 3, "kept_bytes", 1 << 30),
])  # fmt: skip
def test_a_wrong_figure_is_found(name, line, field, change, tmp_path):
    run = tmp_path / name
    shutil.copytree(DATA / name, run)
    lines = [json.loads(text) for text in (run / "truth.jsonl").read_text().splitlines()]
    lines[line][field] += change
    (run / "truth.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    assert life.check(name, run) != []
