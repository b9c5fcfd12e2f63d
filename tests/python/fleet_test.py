"""docs/python.md is true: its examples run, in order, and DuckDB reads every table and view of a ledger."""

import contextlib
import io
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess

import pandas
import pytest
from conftest import BUILD

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
COMMAND = os.path.join(BUILD, "bin", "shardledger")

pytestmark = pytest.mark.skipif(not os.path.exists(COMMAND), reason=f"{COMMAND} is not built")


@pytest.fixture
def duckdb(monkeypatch):
    """DuckDB whose connections have its sqlite extension, from a wheel: nothing is downloaded."""
    module = pytest.importorskip("duckdb")
    wheel = pytest.importorskip("duckdb_extension_sqlite_scanner")
    (extension,) = pathlib.Path(wheel.__file__).parent.glob("extensions/*/*.duckdb_extension")
    connect = module.connect

    class Connection:
        def __init__(self):
            self.real = connect()
            self.real.load_extension(str(extension))

        def execute(self, sql, *arguments):
            return None if sql.startswith("INSTALL") else self.real.execute(sql, *arguments)

        def sql(self, sql):
            return self.real.sql(sql)

    monkeypatch.setattr(module, "connect", Connection)
    return module


def test_the_examples_of_the_page_run_in_order(duckdb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(DATA / "fsdp2-2rank", "shardledger-out")
    for run in ("fsdp2-2rank", "fsdp2-2rank-recompute", "oom-forward-2rank"):
        shutil.copytree(DATA / run, pathlib.Path("tests/data") / run)
    names, printed, ran = {}, io.StringIO(), 0
    page = (ROOT / "docs" / "python.md").read_text()
    for match in re.finditer(r"^```(python|sh)\n(.*?)^```", page, re.M | re.S):
        if match[1] == "sh":
            subprocess.run(["bash", "-euc", match[2]], check=True,
                           env=dict(os.environ, PATH=f"{os.path.dirname(os.path.abspath(COMMAND))}:{os.environ['PATH']}"))
        else:
            with contextlib.redirect_stdout(printed):
                exec(compile(match[2], f"python.md, block {ran + 1}", "exec"), names)
        ran += 1
    frames = [value for value in names.values() if isinstance(value, pandas.DataFrame)]
    assert ran >= 6 and len(frames) >= 5
    assert all(len(frame) > 0 for frame in frames)
    assert len(printed.getvalue().splitlines()) > 25


def test_the_accessors_of_the_page_are_those_of_the_package():
    from shardledger.ledger import _ACCESSORS

    page = (ROOT / "docs" / "python.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| .* \| `(\w+)` \|$", page, re.M) == [entry[:2] for entry in _ACCESSORS]


def test_duckdb_reads_every_table_and_view(duckdb, tmp_path):
    ledger = tmp_path / "run.sqlite"
    subprocess.run([COMMAND, "ingest", DATA / "fsdp2-2rank", "-o", ledger], check=True, capture_output=True)
    reader = duckdb.connect()
    reader.execute(f"ATTACH '{ledger}' AS run (TYPE sqlite, READ_ONLY)")
    with sqlite3.connect(ledger) as database:
        for name, kind in database.execute("SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view')"):
            source = f"run.{name}" if kind == "table" else f"sqlite_query('run', 'SELECT * FROM {name}')"
            expected = database.execute(f"SELECT * FROM {name}").fetchall()
            assert len(reader.sql(f"SELECT * FROM {source}").fetchall()) == len(expected), name


def test_duckdb_has_the_same_numbers(duckdb, tmp_path):
    ledger = tmp_path / "run.sqlite"
    subprocess.run([COMMAND, "ingest", DATA / "fsdp2-2rank", "-o", ledger], check=True, capture_output=True)
    reader = duckdb.connect()
    reader.execute(f"ATTACH '{ledger}' AS run (TYPE sqlite, READ_ONLY)")
    sql = "SELECT id, address, bytes, alloc_ns, free_ns, category FROM {}allocation ORDER BY id"
    with sqlite3.connect(ledger) as database:
        assert reader.sql(sql.format("run.")).fetchall() == database.execute(sql.format("")).fetchall()
