"""A recorded job of which rank 1 keeps a tensor on rank 0's GPU and one in pinned host memory, against PyTorch's own statistics."""

import contextlib
import json
import shutil
import sqlite3

import pytest
from checks.devices import compared_devices, compared_host, flagged, read_devices
from checks.harness import ROOT, shardledger

RUN = ROOT / "tests" / "data" / "foreign-device-2rank"
TRUTHS = read_devices(RUN / "truth", 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    copy = shutil.copytree(RUN, tmp_path_factory.mktemp("devices") / "run")
    shardledger("ingest", copy)
    return copy


@pytest.fixture
def ledger(run):
    with contextlib.closing(sqlite3.connect(f"file:{run / 'ledger.sqlite'}?mode=ro", uri=True)) as database:
        yield database


def test_every_rank_has_on_every_gpu_what_pytorch_says(ledger):
    result = compared_devices(TRUTHS, ledger)
    assert result.passed, result.figure


def test_pinned_host_memory_is_what_pytorch_says(ledger):
    result = compared_host(TRUTHS, ledger)
    assert result.passed, result.figure


def said(run, rank):
    """'shardledger device' of a rank's last sample: after that the job keeps nothing more."""
    return json.loads(shardledger("device", run, "--rank", rank, "--at", "last", "--json"))


@pytest.mark.parametrize("rank", [0, 1])
def test_memory_on_anothers_gpu_is_flagged_with_its_bytes(run, rank):
    expected = {
        (holder, device): statistics["reserved"]
        for holder, truth in TRUTHS.items()
        for device, statistics in enumerate(truth["devices"])
        if device != holder and statistics["reserved"]
    }
    rows = said(run, rank)["foreign_devices"]  # of all ranks, whichever is shown
    assert {(row["rank"], row["device"]): row["bytes"] for row in rows if row["owner"] == "pytorch"} == expected != {}
    assert {(row["rank"], row["device"]) for row in rows if row["owner"] == "CUDA context"} == set(expected)
    assert flagged(shardledger("device", run, "--rank", rank)).passed


@pytest.mark.parametrize("rank", [0, 1])
def test_pinned_host_memory_is_shown_with_its_owner(run, rank):
    pinned = {row["owner"]: row["bytes"] for row in said(run, rank)["pinned"]}
    assert pinned["pytorch"] == TRUTHS[rank]["host"]["allocated"] > 0


def test_a_job_that_stays_on_its_own_gpu_is_not_flagged(tmp_path):
    copy = shutil.copytree(RUN.parent / "fsdp2-2rank", tmp_path / "run")
    assert said(copy, 0)["foreign_devices"] == []
