"""A recorded job's lines and operators, against PyTorch's own stacks, torch.profiler and a traceback (job.py, compare.py)."""

import gzip
import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import compare  # noqa: E402

RUN = Path(__file__).resolve().parents[3] / "tests" / "data" / "code" / "fsdp2"


@pytest.fixture
def recorded(tmp_path):
    """(run, truth's file), as job.py left them on one H200 with torch 2.11."""
    run = tmp_path / "run"
    shutil.copytree(RUN, run, ignore=shutil.ignore_patterns("truth*"))
    truth = tmp_path / "truth.json"
    truth.write_bytes(gzip.decompress((RUN / "truth.json.gz").read_bytes()))
    return run, truth


def test_lines_and_operators_agree_with_pytorch(recorded):
    results = compare.compare(*recorded)
    assert [name for name, *_ in results] == ["lines", "backward", "operators", "refused"]
    assert all(passed for _, passed, _ in results), results


def move_lines(said):
    for _, frames in said["history"]:
        for frame in frames:
            if frame[0].endswith("job.py"):
                frame[1] += 1000


def lose_an_allocation(said):
    said["history"].pop()


def shrink_an_operators_largest(said):
    max(said["operators"])[0] = 1


def move_the_refusal(said):
    said["refused"][-1][1] += 1


@pytest.mark.parametrize("name, change", [("lines", move_lines), ("lines", lose_an_allocation), ("operators", shrink_an_operators_largest),
                                          ("refused", move_the_refusal)])  # fmt: skip
def test_a_difference_is_found(recorded, name, change):
    run, truth = recorded
    said = json.loads(truth.read_text())
    change(said)
    truth.write_text(json.dumps(said))
    assert not {check: passed for check, passed, _ in compare.compare(run, truth)}[name]
