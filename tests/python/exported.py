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
