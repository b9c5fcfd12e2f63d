"""The ten questions of an on-call engineer are each answered by one command; 1,024 ranks: bench/fleet_questions.py."""

import os
import pathlib
import sys

import pytest
from conftest import BUILD

ROOT = pathlib.Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(not os.path.exists(os.path.join(BUILD, "bin", "shardledger")), reason="nothing is built")

sys.path.insert(0, str(ROOT / "bench"))
import fleet_questions  # noqa: E402

fleet_questions.BIN = pathlib.Path(BUILD).resolve() / "bin"
JOB = fleet_questions.Job(256)
SCREEN, SECONDS = 60, 3  # lines; of processor: a tenth of it is taken, on a free machine


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    fleet_questions.make(JOB, directory)
    return directory


@pytest.mark.parametrize("question, words, wanted", JOB.questions(), ids=[entry[0] for entry in JOB.questions()])
def test_the_question_has_one_command(runs, question, words, wanted):
    answer, spent, _ = fleet_questions.ask(runs, words)
    assert fleet_questions.missing(answer, wanted) == [], answer
    assert len(answer.splitlines()) <= SCREEN
    assert spent < SECONDS


def test_an_answer_that_lacks_something_is_noticed():
    assert fleet_questions.missing("137 (gpu-node-17)    +2.00 GiB", ("137 (gpu-node-17) | +2.00 GiB", "since step 9")) == ["since step 9"]


def test_there_are_ten_and_the_page_has_them_all():
    page = (ROOT / "docs" / "ranks.md").read_text()
    questions = JOB.questions()
    assert len(questions) == 10
    for question, words, _ in questions:
        assert f"| {question} | `shardledger {' '.join(words)}` |" in page, question
