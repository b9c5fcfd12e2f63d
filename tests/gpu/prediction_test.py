"""Every pair of docs/prediction.md: what 'shardledger whatif' says of one recorded run is what PyTorch said of another one."""

import pytest
from checks.prediction import PAIRS, compare, is_proven


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
