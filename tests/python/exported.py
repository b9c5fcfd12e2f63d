"""What the tests of exports share: recorded runs, their ledgers and their exports."""

import os
import pathlib
import shutil
import sqlite3
import subprocess

import pytest
from conftest import BUILD

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = pathlib.Path(BUILD).resolve() / "bin" / "shardledger"

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")


def rows(path, sql, *parameters):
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return database.execute(sql, parameters).fetchall()
    finally:
        database.close()


def export(run, directory, format, output):
    """Exports a recorded run; returns (its ledger, what was written)."""
    copy = directory / run
    if not copy.exists():
        shutil.copytree(ROOT / "tests" / "data" / run, copy)
    target = directory / output
    done = subprocess.run([COMMAND, "export", copy, "--format", format, "-o", target], capture_output=True, text=True,
                          env={k: v for k, v in os.environ.items() if not k.startswith("SHARDLEDGER_")})
    assert done.returncode == 0, done.stderr
    return copy / "ledger.sqlite", target


MARKS = [("data ready", "shardledger", None, 0), ("loss spike", "apex", 7, 1), ("plain", None, None, 1)]


def export_marks(directory, format, output):
    """A recorded run whose ledger got MARKS (name, domain, value, step) on rank 0's main thread in steps 0 and 1, exported."""
    ledger, _ = export("fsdp2-2rank", directory, format, f"unmarked-{output}")
    database = sqlite3.connect(ledger)
    with database:
        for name, domain, value, step in MARKS:
            database.execute("INSERT INTO mark(rank, tid, at_ns, name, domain, value, module_id, period, step) SELECT rank,"
                             " (SELECT pid FROM rank r WHERE r.rank = p.rank), start_ns + 5000, ?, ?, ?, (SELECT id FROM"
                             " module_name WHERE rank = p.rank AND label = 'blocks.1'), period, step FROM period p"
                             " WHERE rank = 0 AND kind = 'step' AND step = ?", (name, domain, value, step))
    database.close()
    return export("fsdp2-2rank", directory, format, output)


# For programs of others: training, all kernels, recomputation, no steps, a refused request, a kill, call stacks, a server.
RUNS = ["fsdp2-2rank", "fsdp2-2rank-kernels", "fsdp2-2rank-recompute", "nccl-2rank", "oom-backward-2rank", "killed-2rank",
        "sites", "life/server"]


# The phases that timelines have: of steps that are there in full, and outside of steps.
SHOWN_PHASES = "(SELECT p.* FROM phase p LEFT JOIN step s ON s.rank = p.rank AND s.step = p.step WHERE s.same_as IS NULL)"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Makes the export of each of RUNS in a format: {run: (its ledger, what was written)}."""
    directory = tmp_path_factory.mktemp("readers")
    return lambda format, output: {run: export(run, directory, format, f"{run.replace('/', '-')}-{output}") for run in RUNS}
