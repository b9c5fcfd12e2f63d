"""The SQL of a ledger's tables and views, as the build writes it (storage/tables/tables.def, views/)."""

import contextlib
import functools
import os
import sqlite3
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("SHARDLEDGER_BUILD_DIR") or ROOT / "build" / "release").resolve()


@functools.cache
def statements(kind):
    """[CREATE …] of all tables or views in the order in which they were made; of a ledger made for it."""
    with tempfile.TemporaryDirectory() as scratch:
        ledger = Path(scratch) / "ledger.sqlite"
        command = [BUILD / "bin" / "shardledger", "ingest", ROOT / "tests" / "data" / "killed-2rank", "-o", ledger]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with contextlib.closing(sqlite3.connect(ledger)) as database:
            rows = database.execute("SELECT sql FROM sqlite_schema WHERE type = ? ORDER BY rowid", (kind,))
            return [sql for (sql,) in rows]


@functools.cache
def shared_views():
    """{name: SELECT} of the tables that ranks share, in a ledger of ranks that did the same: rows of own_NAME and rank_rows."""
    with tempfile.TemporaryDirectory() as scratch:
        run, ledger = Path(scratch) / "run", Path(scratch) / "ledger.sqlite"
        subprocess.run([BUILD / "bin" / "make_fleet", run, "--ranks", "16", "--steps", "1"], check=True)
        subprocess.run([BUILD / "bin" / "shardledger", "ingest", run, "-o", ledger], check=True, stdout=subprocess.DEVNULL)
        with contextlib.closing(sqlite3.connect(ledger)) as database:
            rows = database.execute("SELECT v.name, v.sql FROM sqlite_schema v JOIN sqlite_schema t ON t.name = 'own_' || v.name"
                                    " WHERE v.type = 'view' ORDER BY v.rowid").fetchall()
        return {name: sql.split(" AS ", 1)[1] for name, sql in rows}


def empty_tables(database):
    """Makes the tables, and the steps' view of the periods, in a database of the caller's."""
    for statement in statements("table") + [sql for sql in statements("view") if sql.startswith("CREATE VIEW step AS")]:
        database.execute(statement)
