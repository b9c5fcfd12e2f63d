"""Every pair of docs/prediction.md: what 'shardledger whatif' says of one recorded run is what PyTorch said of another one."""

import csv
import io
import shutil

import pytest
from checks.harness import shardledger
from checks.prediction import DATA, PAIRS, compare, is_proven


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("predictions")


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_the_prediction_is_what_was_recorded(pair, scratch):
    found = compare(pair, scratch)
    assert is_proven(found), found


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.kind == "--loss-chunks"], ids=lambda pair: pair.name)
def test_the_loss_in_pieces_takes_what_was_recorded(pair, scratch):
    found = compare(pair, scratch)
    for quantity in ("requested", "allocated"):
        assert found[quantity]["within"] == found[quantity]["figures"], found


@pytest.mark.parametrize("job, standing", [("loop", "bound"), ("compiled", "estimate")])
def test_when_compiled_code_lets_go_of_tensors_is_not_proven(job, standing, scratch):
    run = scratch / job
    shutil.copytree(DATA / "code" / "idle" / job, run)
    found = list(csv.DictReader(io.StringIO(shardledger("whatif", run, "--accumulate", "2", "--csv"))))
    assert [row["standing"] for row in found if row["figure"] == "requested"] == [standing], found
