"""A recorded run as Python sees it: shardledger.open(path). Not imported where a job is recorded."""

import html
import os
import pathlib
import sqlite3
import subprocess

from ._companion.answers.report import Report
from ._companion.layout import find_command

_OLDEST_SQLITE = (3, 35)  # the views use what it brought

# Accessors: name, table or view, and what a row is. docs/schema.md describes the columns.
_ACCESSORS = (
    ("ranks", "rank", "a process of the job: host, device, versions, events lost"),
    ("life", "life_peak", "a rank: the highest point of its life, in a step or not (period, place), beside its highest step"),
    ("periods", "period_place", "a stretch of a rank's life: a step, or what is before, between and after them, in words"),
    ("steps", "step_summary", "a step: its peaks and where they were"),
    ("modules", "module", "an nn.Module"),
    ("peaks", "module_peaks", "the highest point of a module and phase; module_id is missing for a whole period"),
    ("categories", "category_at_peak", "a category at a period's peak"),
    ("snapshots", "fsdp_snapshot", "a module, state and category, in FSDPMemTracker's words"),
    ("collectives", "collective_cost", "an NCCL call: time, bytes, how late this rank was"),
    ("device", "device_balance", "an owner of device memory at a sample"),
    ("survivors", "survivors", "what outlives its step and the next one"),
    ("allocations", "allocation", "an allocation of PyTorch's allocator, from malloc to free"),
    ("ooms", "oom", "a request that was refused"),
)


class LedgerError(Exception):
    """A path that is no run, or one that can't be read; the text says what to do."""


def _pandas():
    try:
        import pandas
    except ImportError:
        raise LedgerError("DataFrames need pandas: pip install pandas (rows() works without)") from None
    return pandas


def _run_command(*arguments):
    command = find_command()
    if command is None:
        raise LedgerError("the command shardledger is not installed beside this package, and not on PATH")
    done = subprocess.run([command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    if done.returncode != 0:
        raise LedgerError(done.stderr.strip().replace("shardledger: ", "") or f"shardledger ended with {done.returncode}")


class Ledger:
    """A run's ledger, open for reading. See docs/python.md.

    Every accessor (steps, peaks, snapshots …) gives a pandas.DataFrame, one row for each of what its help says; keywords
    choose rows by the value of a column: ledger.peaks(rank=0, phase="backward").
    """

    def __init__(self, path):
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise LedgerError(f"this Python has SQLite {sqlite3.sqlite_version}, and ledgers need 3.35 or newer; "
                              "'shardledger query' has its own")
        path = os.fspath(path)
        # Finds and checks the ledger, and makes it first where that is missing or older than its logs.
        _run_command("query", "SELECT 1", "--", path)
        self.path = os.path.join(path, "ledger.sqlite") if os.path.isdir(path) else path
        uri = pathlib.Path(self.path).resolve().as_uri() + "?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """Closing twice is harmless."""
        self._connection.close()

    def __repr__(self):
        return f"<shardledger.Ledger {self.path}>"

    @property
    def tables(self):
        """{name: [columns]} of all tables and views."""
        names = self._execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY name").fetchall()
        return {name: self._columns(name) for (name,) in names}

    def query(self, sql, params=()):
        """The rows of a SELECT as a pandas.DataFrame. params: for ? a sequence, for :name a mapping.

        Integers stay integers, also in columns where some are missing (Int64): times in ns don't fit a float.
        """
        return self._frame(sql, params)

    def rows(self, sql, params=()):
        """The same as a list of dicts, without pandas."""
        cursor = self._execute(sql, params)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row)) for row in cursor]

    def table(self, name, **where):
        """A table or view as a DataFrame; where: only rows whose column has the value (None: that have none)."""
        # Of a table that ranks share, the view has no types of its own.
        types = dict(self._execute("SELECT name, type FROM pragma_table_info(iif(EXISTS (SELECT 1 FROM sqlite_schema "
                                   "WHERE name = 'own_' || ?1), 'own_' || ?1, ?1))", (name,)))
        columns = list(types)
        if not columns:
            raise LedgerError(f"there is no table or view {name!r}; .tables lists them")
        for column in where:
            if column not in columns:
                raise LedgerError(f"{name} has no column {column!r}; it has {', '.join(columns)}")
        condition = " AND ".join(f'"{column}" IS :{column}' for column in where) or "1"
        return self._frame(f'SELECT * FROM "{name}" WHERE {condition}', where, types)

    def report(self):
        """The report of `shardledger report`, which Jupyter displays inline; .save(path) keeps it."""
        return Report(self.path, _run_command)

    def to_parquet(self, directory, run=None):
        """Adds every table to a lake of Parquet files, as `shardledger export --format parquet`; returns the run's name there."""
        from .lake import export

        return export(self.path, directory, run)

    def _repr_html_(self):
        """In a notebook: each rank's highest point, the first eight."""
        ranks = self.rows("SELECT rank, place, printf('%.2f GiB', peak_allocated_bytes / 1073741824.0) AS gib FROM life_peak"
                          " ORDER BY peak_allocated_bytes DESC, rank LIMIT 9")
        lines = "".join(
            f"<tr><td>{row['rank']}</td><td>{row['gib']}</td><td>{html.escape(row['place'] or '')}"
            "</td></tr>" for row in ranks[:8])
        more = "<p>and more ranks: .life() has all</p>" if len(ranks) > 8 else ""
        return (f"<p>ShardLedger: {html.escape(self.path)}</p><table><tr><th>Rank</th><th>Peak allocated</th><th>Where</th></tr>"
                f"{lines}</table>{more}")

    def _frame(self, sql, params, types=None):
        pandas = _pandas()
        cursor = self._execute(sql, params)
        names = [column[0] for column in cursor.description or ()]
        columns = list(zip(*cursor.fetchall())) or [()] * len(names)
        declared = [(types or {}).get(name) for name in names]
        frame = pandas.DataFrame({place: _column(pandas, values, kind)
                                  for place, (values, kind) in enumerate(zip(columns, declared))})
        frame.columns = names
        return frame

    def _columns(self, name):
        return [column for (column,) in self._execute("SELECT name FROM pragma_table_info(?)", (name,))]

    def _execute(self, sql, params=()):
        try:
            return self._connection.execute(sql, params)
        except sqlite3.Error as error:
            raise LedgerError(f"{error} in: {sql}") from None


def _column(pandas, values, declared=None):
    """declared: the type of the table's column, which speaks where no value does; an expression of a view has none."""
    kinds = {type(value) for value in values}
    if kinds == {int, type(None)}:
        return pandas.array(list(values), dtype="Int64")
    if kinds <= {type(None)}:
        return pandas.array(list(values), dtype={"INTEGER": "Int64", "REAL": "Float64"}.get(declared, "object"))
    return list(values)


def _accessor(name, source, meaning):
    def rows(self, **where):
        return self.table(source, **where)

    rows.__name__ = name
    rows.__qualname__ = f"Ledger.{name}"
    rows.__doc__ = f"DataFrame of {source}: a row is {meaning}."
    return rows


for _entry in _ACCESSORS:
    setattr(Ledger, _entry[0], _accessor(*_entry))
