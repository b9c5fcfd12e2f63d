"""The map of PyTorch's segments over recorded runs: it adds up to what PyTorch's own statistics said, to the byte."""

import csv
import io
import json
import shutil
import subprocess

import pytest
from exported import COMMAND, ROOT, pytestmark, rows  # noqa: F401

DATA = ROOT / "tests" / "data"
RUNS = ["fsdp2-2rank", "fsdp2-2rank-mixed-precision", "oom-leak-2rank", "oom-optimizer-2rank", "foreign-device-2rank",
        "matrix/expandable-segments", "matrix/late-attach", "matrix/fsdp2-shapes"]


@pytest.fixture(scope="module", params=RUNS)
def recorded(request, tmp_path_factory):
    """(run directory, ledger, whether its segments are expandable)"""
    copy = shutil.copytree(DATA / request.param, tmp_path_factory.mktemp("segments") / "run")
    subprocess.run([COMMAND, "ingest", copy], check=True, capture_output=True)
    ledger = copy / "ledger.sqlite"
    config = rows(ledger, "SELECT coalesce(max(allocator_config), '') FROM rank")[0][0]
    return copy, ledger, "expandable_segments:True" in config


def ask(run, *options):
    done = subprocess.run([COMMAND, "device", run, "--segments", *map(str, options)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def segments(run, *options):
    return [{key: int(value) if value.isdigit() and key.endswith("bytes") else value for key, value in row.items()}
            for row in csv.DictReader(io.StringIO(ask(run, *options, "--csv")))]


def total(table, column):
    return sum(row[column] for row in table)


def test_every_steps_end_adds_up(recorded):
    run, ledger, expandable = recorded
    found = rows(ledger, """SELECT rank, step, end_reserved_bytes, end_allocated_bytes, end_active_bytes,
        end_largest_free_bytes, end_inactive_split_bytes FROM step WHERE end_reserved_bytes IS NOT NULL""")
    assert found
    for rank, step, reserved, allocated, active, largest, split in found[:16]:
        table = segments(run, "--at", step, "--rank", rank)
        assert total(table, "bytes") == reserved and total(table, "allocated_bytes") == allocated, (rank, step)
        assert total(table, "pending_bytes") == active - allocated, (rank, step)
        assert max(row["largest_free_bytes"] for row in table) == largest, (rank, step)
        free = total(table, "returnable_bytes") + total(table, "kept_bytes")
        assert free == reserved - active, (rank, step)
        if not expandable:
            assert total(table, "kept_bytes") == split, (rank, step)


def test_segments_are_what_the_job_read_as_reserved(tmp_path):
    run = shutil.copytree(DATA / "fsdp2-2rank", tmp_path / "run")
    for line in (run / "truth.rank0").read_text().splitlines():
        truth = json.loads(line)
        assert total(segments(run, "--at", truth["step"], "--rank", 0), "bytes") == truth["reserved_end"]


def test_the_peak_and_the_refused_request_add_up(recorded):
    run, ledger, _ = recorded
    for rank, highest in rows(ledger, "SELECT rank, max(peak_allocated_bytes) FROM step GROUP BY rank"):
        assert total(segments(run, "--at", "peak", "--rank", rank), "allocated_bytes") == highest
    for rank, reserved, allocated in rows(ledger, "SELECT rank, reserved_bytes, allocated_bytes FROM oom"):
        table = segments(run, "--at", "oom", "--rank", rank)
        assert (total(table, "bytes"), total(table, "allocated_bytes")) == (reserved, allocated)


def test_the_steps_are_the_sums_of_their_maps(recorded):
    run, ledger, _ = recorded
    table = json.loads(ask(run, "--by", "step", "--rank", 0, "--json"))
    assert [row["step"] for row in table] == [step for step, in rows(
        ledger, "SELECT step FROM step WHERE rank = 0 AND end_reserved_bytes IS NOT NULL ORDER BY step")]
    for row in table[:4]:
        parts = segments(run, "--at", row["step"], "--rank", 0)
        assert row["segments"] == len(parts) and row["kept_bytes"] == total(parts, "kept_bytes")
        assert row["returnable_bytes"] == total(parts, "returnable_bytes") and row["thin_bytes"] <= row["kept_bytes"]
