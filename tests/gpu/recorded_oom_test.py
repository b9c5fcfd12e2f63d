"""Recorded jobs that ran out of memory, through the real command: who asked, and that what was alive adds up."""

import contextlib
import json
import shutil
import sqlite3

import pytest
from checks.harness import ROOT, shardledger
from checks.oom import as_pytorch_says, grows, message_in, read_errors, refused

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
    # The job keeps each step's outputs of four blocks: 4 x (4 x 1024 x 1024) elements of bf16.
    assert grows("leak", shardledger("survivors", copy)).figure.startswith("Grows 32.0 MiB a step")


def test_a_killed_job_says_where_it_was(tmp_path):
    copy = shutil.copytree(DATA / "killed-2rank", tmp_path / "run")
    text = shardledger("oom", copy)
    ledger = sqlite3.connect(copy / "ledger.sqlite")
    last = ledger.execute("SELECT rank, max(step) FROM step GROUP BY rank").fetchall()
    assert ledger.execute("SELECT sum(clean_exit), sum(events_lost) FROM rank").fetchone() == (0, 0)
    ledger.close()
    assert any(f"Rank {rank}'s log just stops, in step {step}:" in text for rank, step in last), text


def test_the_loss_in_chunks_is_worth_about_what_it_saved_in_the_run_that_had_it(tmp_path):
    """The same job under the same limit, as it was and with its loss in 8 chunks: what it is about is a bound on what the
    step then needed less, its refused request included, and no wild one. It is the first of what is not predicted."""
    runs = {name: shutil.copytree(DATA / name, tmp_path / name) for name in ("oom-limit-2rank", "oom-limit-fixed-2rank")}
    items = json.loads(shardledger("oom", runs["oom-limit-2rank"], "--json"))["advice"]
    first = next(item for item in items if item["standing"] == "not predicted")
    shardledger("info", runs["oom-limit-fixed-2rank"])
    with contextlib.closing(sqlite3.connect(runs["oom-limit-2rank"] / "ledger.sqlite")) as ledger:
        needed, step = ledger.execute("SELECT allocated_bytes + requested_bytes, step FROM oom ORDER BY at_ns").fetchone()
    with contextlib.closing(sqlite3.connect(runs["oom-limit-fixed-2rank"] / "ledger.sqlite")) as ledger:
        peak = ledger.execute("SELECT max(peak_allocated_bytes) FROM step WHERE step = ?", (step,)).fetchone()[0]
    saved = needed - peak
    assert (first["advice"], first["fits"], first["standing"]) == ("loss", "perhaps", "not predicted")
    assert saved <= first["about_bytes"] <= 1.5 * saved


def test_a_leak_is_advice_by_all_that_it_left_and_the_first_one(tmp_path):
    copy = shutil.copytree(DATA / "oom-leak-2rank", tmp_path / "run")
    first = json.loads(shardledger("oom", copy, "--json"))["advice"][0]
    # 32 MiB a step, of the five that ended.
    assert (first["advice"], first["about_bytes"], first["fits"]) == ("leak", 5 * 32 * 2**20, "perhaps")


def test_an_evaluation_that_keeps_its_logits_is_told_to_keep_less(tmp_path):
    copy = shutil.copytree(DATA / "life" / "evaluation-oom", tmp_path / "run")
    first = json.loads(shardledger("oom", copy, "--json"))["advice"][0]
    died = next(line for line in map(json.loads, (copy / "truth.jsonl").read_text().splitlines()) if line["what"] == "died")
    assert (first["advice"], first["about_bytes"]) == ("kept_outputs", died["kept_bytes"])


def test_what_an_old_recording_cant_tell_apart_is_no_advice(tmp_path):
    """In AdamW's first step its state has no tags there, and looks as if it were temporaries."""
    copy = shutil.copytree(DATA / "oom-optimizer-2rank", tmp_path / "run")
    fits = {item["advice"]: item["fits"] for item in json.loads(shardledger("oom", copy, "--json"))["advice"]}
    assert fits["adamw_fused"] == fits["adamw_forloop"] == fits["sgd"] == "refused"
