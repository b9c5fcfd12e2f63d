"""Recorded jobs that ran out of memory, through the real command: who asked, and that what was alive adds up."""

import contextlib
import shutil
import sqlite3

import pytest
from checks.harness import ROOT, shardledger
from checks.oom import as_pytorch_says, message_in, read_errors, refused

DATA = ROOT / "tests" / "data"


@pytest.mark.parametrize(
    "run, kind",
    [
        ("oom-backward-2rank", "backward"),
        ("oom-forward-2rank", "forward"),
        ("oom-leak-2rank", "backward"),
        ("oom-limit-2rank", "backward"),
        ("oom-loss-2rank", "step"),
        ("oom-optimizer-2rank", "optimizer_step"),
    ],
)
def test_the_refused_request_has_its_phase_and_its_owners(run, kind, tmp_path):
    copy = shutil.copytree(DATA / run, tmp_path / run)
    text = shardledger("oom", copy)
    ledger = sqlite3.connect(copy / "ledger.sqlite")
    result = refused(run, ledger, 1, kind, text)
    ledger.close()
    assert result.passed, result.figure


@pytest.mark.parametrize("run", ["oom-limit-2rank", "oom-optimizer-2rank"])
def test_it_has_the_figures_of_pytorchs_message(run, tmp_path):
    copy = shutil.copytree(DATA / run, tmp_path / "run")
    text = shardledger("oom", copy)
    errors = read_errors(copy / "truth")
    with contextlib.closing(sqlite3.connect(copy / "ledger.sqlite")) as ledger:
        result = as_pytorch_says(run, errors, ledger)
    assert result.passed and sorted(errors) == [0, 1], result.figure
    named = message_in(run, errors, text)
    assert named.passed, named.figure


def test_a_leak_is_found_with_its_growth(tmp_path):
    copy = shutil.copytree(DATA / "oom-leak-2rank", tmp_path / "run")
    growth = [line for line in shardledger("survivors", copy).splitlines() if line.startswith("Grows ")]
    # The job keeps each step's outputs of four blocks: 4 x (4 x 1024 x 1024) elements of bf16.
    assert growth and growth[0].startswith("Grows 32.0 MiB a step")


def test_a_killed_job_says_where_it_was(tmp_path):
    copy = shutil.copytree(DATA / "killed-2rank", tmp_path / "run")
    text = shardledger("oom", copy)
    ledger = sqlite3.connect(copy / "ledger.sqlite")
    last = ledger.execute("SELECT rank, max(step) FROM step GROUP BY rank").fetchall()
    assert ledger.execute("SELECT sum(clean_exit), sum(events_lost) FROM rank").fetchone() == (0, 0)
    ledger.close()
    assert any(f"Rank {rank}'s log just stops, in step {step}:" in text for rank, step in last), text
