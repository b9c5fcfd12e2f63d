"""Every table of docs/advice.md: what 'shardledger advise' says of recorded dead jobs is what came of the changes on one GPU."""

import pytest
from checks.advice import CASES, QUANTITIES, TO_THE_END, ask, outcomes, suffices
from checks.prediction import DATA, truth_steps

MANY = 12  # changes that each job was tried with, or nearly
FEW = {"eval-logits-oom", "long-context-loss", "oom-first-adamw"}  # the first advice and, of the last, what is said not to fit


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_to_fit_got_to_the_end_of_what_is_known(case):
    for one in outcomes(case):
        if one.fits in TO_THE_END:
            assert one.end, f"{one.change} was not tried"
            assert any(row["step"] == one.goal["step"] for row in one.steps), one.change
        if one.fits in ("yes", "life"):
            assert one.end == "survived", one.change


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_not_to_fit_died(case):
    for one in outcomes(case):
        if one.fits == "no" and one.end:
            assert one.end == "out of memory", one.change
            assert not any(row["step"] == one.goal["step"] for row in one.steps), one.change


@pytest.mark.parametrize("case", CASES)
def test_what_is_predicted_is_pytorchs_own_figure(case):
    for one in outcomes(case):
        for quantity, figure in one.figures.items():
            assert figure.off == 0, (one.change, quantity, figure)


@pytest.mark.parametrize("case", CASES)
def test_a_leak_uses_up_the_room_in_no_more_steps_than_said(case):
    for one in outcomes(case):
        if one.fits == "while" and one.end == "out of memory":
            assert one.steps[-1]["step"] - one.goal["step"] <= one.item["lasts_steps"], one.change


@pytest.mark.parametrize("case", [case for case in CASES if suffices(case) == "something"])
def test_the_first_advice_survives(case):
    first = outcomes(case)[0]
    assert first.end == "survived", (first.change, first.fits)


@pytest.mark.parametrize("case", [case for case in CASES if suffices(case) != "something"])
def test_where_nothing_is_said_to_be_enough_nothing_that_was_tried_survived(case):
    found = outcomes(case)
    assert all(one.fits in ("past", "hardly", "no", "refused") for one in found if one.item)
    assert {one.end for one in found if one.end} == {"out of memory"}


def test_of_the_setup_nothing_is_known_to_be_enough():
    found = outcomes("setup")
    assert suffices("setup") == "unknown"
    assert [one.fits for one in found if one.item and one.fits != "refused"] == ["past"]


@pytest.mark.parametrize("run, changed", [("one", "one-loss8"), ("one-batch2", "one-loss8-batch2")])
def test_the_loss_in_chunks_of_a_run_that_did_not_die_is_what_was_recorded(run, changed):
    (item,) = (item for item in ask(run, DATA / "predictions")["advice"] if item["advice"] == "loss")
    (rows,) = truth_steps(f"predictions/{changed}").values()
    for quantity in ("requested", "allocated"):
        column, _ = QUANTITIES[quantity]
        measured = max(row[f"{quantity}_peak"] for row in rows)
        assert item[f"{column}_bytes"] <= measured <= item[f"{column}_most_bytes"]


def test_enough_was_tried_and_measured():
    """Else the tests above could pass with nothing to compare."""
    found = {case: outcomes(case) for case in CASES}
    tried = {case: sum(bool(one.end) for one in some) for case, some in found.items()}
    assert len(CASES) >= 15 and all(count >= MANY for case, count in tried.items() if case not in FEW)
    every = [one for some in found.values() for one in some]
    assert sum(one.fits in ("yes", "life") for one in every) >= 13
    assert sum(one.fits == "no" and bool(one.end) for one in every) >= 14
    exact = [figure for one in every for figure in one.figures.values() if figure.low == figure.high and not figure.is_bound]
    assert len(exact) >= 55
    assert sum(one.change == "offload_optimizer" and one.fits == "yes" for one in every) >= 6
