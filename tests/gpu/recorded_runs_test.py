"""The recorded runs of tests/data through the real command, held against the truth files that lie beside their logs."""

import contextlib
import shutil
import sqlite3

import pytest
from checks.attribution import check_attribution
from checks.balance import check_balance
from checks.bounds import check_bounds
from checks.consistency import check_consistency
from checks.harness import ROOT, shardledger
from checks.tracker import check_tracker
from checks.truth import check_exact, read_truth

DATA = ROOT / "tests" / "data"

RUNS = sorted({path.parent.parent for path in DATA.glob("**/*.slog")})


def prefixes():
    """The truth prefix of every recorded run: <run directory>/<prefix>.rank0, beside <prefix>.tracker.rank0 and others."""
    found = (path.with_suffix("") for path in sorted(DATA.glob("*/*.rank0")) if path.name.count(".") == 1)
    return [pytest.param(prefix, id=prefix.parent.name) for prefix in found]


@pytest.fixture(scope="module")
def ledger_of(tmp_path_factory):
    """Ingests a run once, from a copy, so that the checkout stays as it is."""
    ledgers = {}
    with contextlib.ExitStack() as stack:

        def ledger(run):
            if run not in ledgers:
                copy = shutil.copytree(run, tmp_path_factory.mktemp("runs") / run.name)
                shardledger("ingest", copy)
                database = sqlite3.connect(f"file:{copy / 'ledger.sqlite'}?mode=ro", uri=True)
                ledgers[run] = stack.enter_context(contextlib.closing(database))
            return ledgers[run]

        yield ledger


@pytest.mark.parametrize("prefix", prefixes())
def test_every_step_equals_memory_stats_to_the_byte(prefix, ledger_of):
    result = check_exact(prefix.parent.name, read_truth(prefix), ledger_of(prefix.parent))
    assert result.passed, result.figure


@pytest.mark.parametrize("prefix", prefixes())
def test_peaks_are_attributed(prefix, ledger_of):
    result = check_attribution(prefix.parent.name, ledger_of(prefix.parent))
    assert result.passed, result.figure


@pytest.mark.parametrize("run", [pytest.param(run, id=str(run.relative_to(DATA))) for run in RUNS])
def test_the_tables_tell_one_story(run, ledger_of):
    result = check_consistency(run.name, ledger_of(run))
    assert result.passed, result.figure


@pytest.mark.parametrize("prefix", prefixes())
def test_the_device_is_explained(prefix, ledger_of):
    result = check_balance(prefix.parent.name, ledger_of(prefix.parent))
    assert result.passed, result.figure


@pytest.mark.parametrize("prefix", prefixes())
def test_snapshots_agree_with_the_tracker(prefix, ledger_of):
    if not list(prefix.parent.glob(f"{prefix.name}.tracker.rank*")):
        pytest.skip("recorded without FSDPMemTracker")
    result = check_tracker(prefix.parent.name, prefix, ledger_of(prefix.parent))
    assert result.passed, result.figure


@pytest.mark.parametrize("run", ["fsdp2-2rank", "fsdp2-2rank-recompute"])
def test_phases_keep_the_bounds_of_pytorchs_own_memory_tests(run, ledger_of):
    result = check_bounds(run, ledger_of(DATA / run))
    assert result.passed, result.figure
