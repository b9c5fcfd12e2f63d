"""What the view nccl_estimate says against what NCCL took: of every recorded run, none of which it was made from, and of the
measurement (nccl_memory.py) that it was made from."""

import json
import sqlite3
import subprocess

import pytest
from checks.harness import ROOT, SHARDLEDGER

DATA = ROOT / "tests" / "data"
MIB = 1 << 20
RUNS = sorted([*DATA.glob("*-2rank"), *(DATA / "matrix").iterdir()])  # where there were two GPUs
MEASURED = {row["name"]: row for row in json.loads((DATA / "nccl-memory" / "measured.json").read_text())}

# What NCCL took less for than the estimate: why.
LESS = {
    "nccl-2rank": "the buffers of one pair's sends belong to the communicator that connected the pair first",
    "nccl-profiler-only-2rank": "without NCCL's ranges the buffers of sends are nobody's",
}


@pytest.fixture(scope="module")
def estimates(tmp_path_factory):
    """{run: [(estimated, recorded)]} of the recorded runs with communicators."""
    found = {}
    for run in RUNS:
        ledger = tmp_path_factory.mktemp("ledger") / "run.sqlite"
        if subprocess.run([SHARDLEDGER, "ingest", run, "-o", ledger], capture_output=True).returncode:
            continue
        with sqlite3.connect(ledger) as db:
            rows = db.execute("SELECT estimated_bytes, recorded_bytes FROM nccl_estimate WHERE recorded_bytes IS NOT NULL").fetchall()
        ledger.unlink()
        if rows:
            found[str(run.relative_to(DATA))] = rows
    return found


def test_the_estimate_is_what_recorded_communicators_took(estimates):
    assert sum(map(len, estimates.values())) > 70
    wrong = {run: rows for run, rows in estimates.items() if any(estimated != recorded for estimated, recorded in rows)}
    assert set(wrong) == set(LESS)
    assert all(estimated >= recorded for rows in wrong.values() for estimated, recorded in rows)


def test_a_rehearsed_rank_has_the_communicator_of_its_only_mesh(tmp_path):
    """FSDP2 as ranks 0 and 15 of 16: one group of all, for all-gathers and reduce-scatters, as fsdp2-2rank really has one of two."""
    subprocess.run([SHARDLEDGER, "ingest", DATA / "rehearsed", "-o", tmp_path / "run.sqlite"], check=True, capture_output=True)
    with sqlite3.connect(tmp_path / "run.sqlite") as db:
        assert db.execute("SELECT * FROM rehearsed_group ORDER BY rank").fetchall() == [(0, 1, 16, 1, 0, 0), (15, 1, 16, 1, 0, 0)]
        estimated = db.execute("SELECT estimated_bytes FROM nccl_estimate").fetchall()
    real = MEASURED["all-gather, reduce-scatter"]["communicators"][0]["bytes"]
    assert estimated == [(real,), (real,)]


def parts(channels, single=0, buffer=4, rings=True):
    """MiB by the parts that docs/nccl.md names. single: channels of sends and receives, at least as many as channels."""
    receive = 2 * -(-(buffer + 5.4) // 2)
    return 4 + 6 * max(channels, single) + rings * channels * (2 + receive)


@pytest.mark.parametrize("name, mib", [
    ("default", parts(24, 32)), ("all-gather", parts(24, 32)), ("all-reduce", parts(24, 32)), ("broadcast", parts(24, 32)),
    ("NCCL_BUFFSIZE=1 MiB", parts(24, 32, buffer=1)), ("NCCL_BUFFSIZE=8 MiB", parts(24, 32, buffer=8)),
    ("NCCL_MAX_NCHANNELS=2", parts(2)), ("NCCL_MAX_NCHANNELS=8", parts(8)), ("NCCL_MAX_CTAS=8", parts(8)),
    ("NCCL_P2P_DISABLE=1", parts(4, rings=False)), ("2 hosts of 1", parts(2, rings=False)), ("8 hosts of 1", parts(2, rings=False)),
])
def test_it_is_made_of_parts_by_channel(name, mib):
    (communicator,) = MEASURED[name]["communicators"]
    assert communicator["bytes"] == mib * MIB


def test_each_communicator_has_its_own():
    one = MEASURED["default"]["communicators"][0]["bytes"]
    assert [c["bytes"] for c in MEASURED["4 communicators"]["communicators"]] == [one] * 4
