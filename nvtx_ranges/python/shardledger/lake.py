"""A lake: ledgers of many ranks and runs as Parquet files, for DuckDB, Spark and whatever reads such files (docs/scale.md).

    lake/allocation/run=before-change/ranks-00000-00007.parquet    a file for each ledger that was exported: mostly a node's
    lake/allocation/run=__HIVE_DEFAULT_PARTITION__/none.parquet    no rows: the table's columns, also where no run has any
    lake/views.duckdb.sql, views.spark.sql                         the ledger's tables and views over these files

Files are a ledger's and not a rank's, because an engine opens each file that it asks: 10,000 ranks would be 10,000 a table.
Their rows are in order of rank, so that the footers tell which to skip. No file is ever added to, so that nodes can write at
the same time. `shardledger export --format parquet` and Ledger.to_parquet come here.
"""

import argparse
import contextlib
import glob
import os
import re
import shutil
import sys
import tempfile

from .ledger import LedgerError

_NONE = "run=__HIVE_DEFAULT_PARTITION__"  # Hive's way to say NULL
_SQL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sql")
_MEMORY = "1GB"  # what does not fit goes to a temporary file
_COMMON = {"category", "meta"}  # have no rank: every node has their rows
_VIEWS = ("views.duckdb.sql", "views.spark.sql")

# The communicator of all ranks has the same id on all nodes, so these need not agree on a name.
_WORLD = ("SELECT k.comm FROM ledger.communicator k JOIN ledger.rank r ON r.rank = k.rank "
          "WHERE r.world_size > 1 AND k.nranks = r.world_size ORDER BY k.start_ns, k.comm LIMIT 1")
_START = ("SELECT strftime(make_timestamp(min(start_ns) // 1000), '%Y-%m-%dT%H-%M-%SZ') FROM ledger.rank "
          "HAVING count(*) = coalesce(max(world_size), 1)")


def export(ledger, directory, run=None):
    """Adds a ledger file to the lake in directory, which is made where there is none; returns the run's name in it.

    run: letters, digits, '.', '_' and '-'; the same for all nodes of a job. Without it, the id of the communicator of all
    ranks or, of a job that has none and is whole, the time of its first event. What the lake has of these ranks in this run
    is replaced, and nothing else. A reader sees each table as it was before or as it is now.
    """
    ledger, directory = os.fspath(ledger), os.fspath(directory)
    with _connection() as database:
        _attach(database, ledger)
        run = _checked_name(run) if run is not None else _name(database, ledger)
        ranks = [rank for (rank,) in database.execute("SELECT rank FROM ledger.rank ORDER BY rank").fetchall()]
        if not ranks:
            raise LedgerError(f"{ledger} has no ranks")
        name = _file_name(ranks)
        with _writing(directory):
            replaced = {name, *_files_of(database, os.path.join(directory, "rank", f"run={run}"), ranks)}
            queries = _queries(database)
            for table, query in queries.items():
                _keep_columns(database, directory, table, query)
            _replace(database, directory, run, name, replaced, queries)
            for file in _VIEWS:
                part = _part(directory, file)
                shutil.copyfile(os.path.join(_SQL, file), part)
                os.replace(part, os.path.join(directory, file))
    return run


def pack(directory, run=None):
    """Makes one file a table of all that the nodes of a run wrote, when they have; returns how many files it replaced.

    Answers stay the same, and come faster from a tenth of the space. A reader meanwhile may see rows twice.
    """
    directory, run = os.fspath(directory), _chosen(directory, run)
    with _connection() as database, _writing(directory):
        files = {os.path.basename(place): sorted(glob.glob(os.path.join(glob.escape(place), f"run={run}", "ranks-*.parquet")))
                 for place in glob.glob(os.path.join(glob.escape(directory), "*")) if os.path.isdir(place)}
        rows = "SELECT * FROM read_parquet([{}], hive_partitioning = false)"
        queries = {table: rows.format(", ".join(map(_text, paths))) for table, paths in files.items() if paths}
        for table in _COMMON & set(queries):
            queries[table] = queries[table].replace("SELECT", "SELECT DISTINCT", 1)
        ranks = [rank for (rank,) in database.execute(f"SELECT rank FROM ({queries['rank']}) ORDER BY rank").fetchall()]
        before = [path for paths in files.values() for path in paths]
        _replace(database, directory, run, _file_name(ranks), set(map(os.path.basename, before)), queries)
    return len(before)


def runs(directory):
    """The names of a lake's runs, sorted."""
    found = glob.glob(os.path.join(glob.escape(os.fspath(directory)), "rank", "run=*"))
    return sorted(os.path.basename(path)[len("run="):] for path in found if os.path.basename(path) != _NONE)


def connect(directory, run=None):
    """A DuckDB connection that has the tables and views of one run, by the ledger's names. run: may be left out of one alone."""
    directory, run = os.path.abspath(os.fspath(directory)), _chosen(directory, run)
    database = _duckdb().connect(config={"temp_directory": tempfile.gettempdir()})
    database.execute(f"SET VARIABLE lake = {_text(directory)}")
    database.execute(f"SET VARIABLE run = {_text(run)}")
    database.execute(_read(os.path.join(directory, _VIEWS[0])))
    return database


def spark_views(session, directory, run=None):
    """The same as temporary views of a Spark session."""
    directory, run = os.path.abspath(os.fspath(directory)), _chosen(directory, run)
    text = re.sub("^--.*\n", "", _read(os.path.join(directory, _VIEWS[1])), flags=re.M)
    for statement in filter(str.strip, re.split(r";\n", text)):
        session.sql(statement.replace("${lake}", directory).replace("${run}", run))


def different(directory, run=None, at_least=1 << 20):
    """Which ranks of a run differ from the others, in what, and since when: the largest difference first.

    A list of dicts, one for all ranks that differ alike: ranks, hosts, whole_hosts (all ranks of these hosts are in it),
    bytes (more at the peak; at most), per_step_bytes (what that grows by), since_step (None: before the first step), and what
    holds the most of it: what (a category), module, phase. Of ranks that stopped early or were not recorded `what` says so, and
    the rest is None. at_least: bytes below which ranks are alike.

    Where one ledger has all ranks of the lake, these are the groups of `shardledger ranks`, one dict for each of their
    differences; next_to: the ranks that these were compared with, None where they are the largest group. Where nodes exported
    their own, each step's peak is held against the median of all ranks (next_to is None) or, where that leaves half as many
    apart, of the ranks with the same coordinate of a device mesh.
    """
    with contextlib.closing(connect(directory, run)) as database:
        database.execute(f"SET memory_limit = '{_MEMORY}'")
        database.execute(f"SET VARIABLE at_least = {int(at_least)}")
        database.execute(f"SET VARIABLE grouped = {_is_grouped(database, directory, _chosen(directory, run))}")
        cursor = database.execute(_read(os.path.join(_SQL, "different.duckdb.sql")))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]


def _is_grouped(database, directory, run):
    """Whether all ranks were compared by one ledger: then the largest group has one rank that speaks for it."""
    if len(glob.glob(os.path.join(glob.escape(os.fspath(directory)), "rank", f"run={run}", "ranks-*.parquet"))) > 1:
        return False
    (leaders,) = database.execute("SELECT count(DISTINCT representative) FROM rank_group WHERE group_number = 0").fetchone()
    return leaders == 1


def ranges(ranks):
    """[0, 1, 2, 7] as "0-2,7"."""
    parts = []
    for rank in sorted(ranks):
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


# ---- writing ----


@contextlib.contextmanager
def _writing(directory):
    duckdb = _duckdb()
    try:
        yield
    except OSError as error:
        raise LedgerError(f"{directory} can't be written: {error.strerror}; choose another directory") from None
    except duckdb.IOException as error:
        raise LedgerError(f"{directory} can't be written: {str(error).splitlines()[0]}") from None


def _file_name(ranks):
    return f"ranks-{ranks[0]:05d}-{ranks[-1]:05d}.parquet"


def _replace(database, directory, run, name, replaced, queries):
    """Each table's rows are written beside their place first, then take it, in the stead of the replaced files. `rank` is the
    last to: by it a later export tells what is there."""
    written = {}
    try:
        for table in sorted(queries, key=lambda table: (table == "rank", table)):
            place = os.path.join(directory, table, f"run={run}")
            os.makedirs(place, exist_ok=True)
            part = written[table] = _part(place, name)
            if _copy(database, queries[table], part) == 0:
                os.remove(part)
                written[table] = None
        for table, part in written.items():
            place = os.path.join(directory, table, f"run={run}")
            if part:
                os.replace(part, os.path.join(place, name))
            for old in replaced - ({name} if part else set()):
                _remove(os.path.join(place, old))
    finally:
        for part in filter(None, written.values()):
            _remove(part)


def _copy(database, query, path):
    (rows,) = database.execute(f"COPY ({query}) TO {_text(path)} (FORMAT parquet, COMPRESSION zstd)").fetchone()
    return rows


def _queries(database):
    """{table: query} of a ledger. What ranks share is asked for in our words, and not in those of views in anybody's file."""
    found = database.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'ledger'").fetchall()
    shared = dict(re.findall(r"^(\w+): (.*?);$", _read(os.path.join(_SQL, "shared.duckdb.sql")), flags=re.M | re.S))
    own = {table for (table,) in found if table.removeprefix("own_") in shared and table.startswith("own_")}
    return {**{table: f"FROM ledger.{table}" for (table,) in found if table not in own},
            **{table.removeprefix("own_"): shared[table.removeprefix("own_")] for table in own}}


def _keep_columns(database, directory, table, query):
    """The file that has no rows; one that is there tells of which version the lake is."""
    place = os.path.join(directory, table, _NONE)
    path = os.path.join(place, "none.parquet")
    if not os.path.exists(path):
        os.makedirs(place, exist_ok=True)
        part = _part(place, "none.parquet")
        _copy(database, f"SELECT * FROM ({query}) LIMIT 0", part)
        os.replace(part, path)
    columns = "SELECT column_name, column_type FROM (DESCRIBE {})"
    theirs = database.execute(columns.format(f"FROM read_parquet({_text(path)}, hive_partitioning = false)")).fetchall()
    if theirs != database.execute(columns.format(query)).fetchall():
        raise LedgerError(f"{directory} was written by another version of ShardLedger, whose table {table} has other "
                          "columns; begin a new lake")


def _files_of(database, place, ranks):
    """Names of the run's files that have any of these ranks. One that has others too can't be replaced."""
    ours, found = set(ranks), []
    for path in glob.glob(os.path.join(glob.escape(place), "ranks-*.parquet")):
        name = os.path.basename(path)
        first, last = map(int, re.findall(r"\d+", name))
        if last < ranks[0] or first > ranks[-1]:
            continue
        rows = database.execute(f"SELECT rank FROM read_parquet({_text(path)}, hive_partitioning = false)").fetchall()
        theirs = {rank for (rank,) in rows}
        if theirs <= ours:
            found.append(name)
        elif theirs & ours:
            raise LedgerError(f"{path} has ranks {ranges(theirs & ours)} of this run, but also {ranges(theirs - ours)}, which "
                              "the ledger lacks; name another run with --name, or export a ledger that has them all")
    return found


def _name(database, ledger):
    world = database.execute(_WORLD).fetchone()
    if world:
        return f"{world[0] & (1 << 64) - 1:016x}"
    start = database.execute(_START).fetchone()
    if start:
        return start[0]
    raise LedgerError(f"{ledger} has a part of its job's ranks, and no communicator of them all to tell the run by; name it "
                      "with --name NAME, the same for all of them")


def _checked_name(run):
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", run):
        raise LedgerError(f"a run's name has letters, digits, '.', '_' and '-', not {run!r}")
    return run


# ---- DuckDB ----


def _duckdb():
    try:
        import duckdb
    except ImportError:
        raise LedgerError(f"Parquet needs DuckDB, which {sys.executable} lacks: {sys.executable} -m pip install duckdb "
                          "duckdb-extension-sqlite-scanner, or name the Python that has it with --python") from None
    return duckdb


@contextlib.contextmanager
def _connection():
    settings = {"memory_limit": _MEMORY, "temp_directory": tempfile.gettempdir()}
    with contextlib.closing(_duckdb().connect(config=settings)) as database:
        yield database


def _attach(database, ledger):
    """Through DuckDB's sqlite extension: of a wheel, where that is installed, so that nothing is downloaded. DuckDB loads
    only what its makers signed."""
    duckdb = _duckdb()
    try:
        import duckdb_extension_sqlite_scanner as wheel

        (extension,) = glob.glob(os.path.join(os.path.dirname(wheel.__file__), "extensions", "*", "*.duckdb_extension"))
    except (ImportError, ValueError):
        extension = "sqlite"
    try:
        database.load_extension(extension)
    except duckdb.Error:
        raise LedgerError(f"Parquet needs DuckDB's sqlite extension for version {duckdb.__version__}: {sys.executable} -m pip "
                          "install -U duckdb duckdb-extension-sqlite-scanner, or once, online, 'INSTALL sqlite' in DuckDB"
                          ) from None
    try:
        database.execute(f"ATTACH {_text(ledger)} AS ledger (TYPE sqlite, READ_ONLY)")
    except duckdb.Error as error:
        raise LedgerError(f"{ledger} can't be read: {str(error).splitlines()[0]}") from None


def _text(value):
    return "'" + value.replace("'", "''") + "'"


def _part(directory, name):
    return os.path.join(directory, f".{name}.{os.getpid()}.part")  # engines pass over names that begin with a point


def _remove(path):
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def _read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def _chosen(directory, run):
    there = runs(directory)
    if not there:
        raise LedgerError(f"{directory}: no lake here; 'shardledger export --format parquet -o {directory}' makes one")
    if run is None and len(there) == 1:
        return there[0]
    if run not in there:
        missing = "say which run" if run is None else f"there is no run {run!r} here"
        raise LedgerError(f"{directory}: {missing}; it has {', '.join(there)}")
    return run


# ---- python -m shardledger.lake ----


def _mebibytes(value):
    return "" if value is None else f"{value / 2**20:+.2f} MiB"


def _print_different(rows):
    for row in rows:
        words = [f"{ranges(row['ranks'])} ({len(row['ranks'])}, {', '.join(row['hosts'][:3]) or 'no host'}"
                 f"{' …' if len(row['hosts']) > 3 else ''}{': all of it' if row['whole_hosts'] else ''})"]
        words.append(f"next to {ranges(row['next_to'])}:" if row["next_to"] else "")
        words.append(_mebibytes(row["bytes"]))
        if row["per_step_bytes"]:
            words.append(f"{_mebibytes(row['per_step_bytes'])}/step")
        words.append(" ".join(filter(None, (row["what"], row["module"], row["phase"]))))
        words.append("" if row["since_step"] is None else f"since step {row['since_step']}")
        print("  ".join(filter(None, words)))
    if not rows:
        print("all ranks are alike")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m shardledger.lake", description="See docs/scale.md.")
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("export", help="add a ledger's tables to a lake")
    add.add_argument("ledger")
    add.add_argument("-o", "--output", required=True)
    ask = commands.add_parser("different", help="which ranks differ from the others, in what, since when")
    ask.add_argument("lake")
    ask.add_argument("--at-least", type=int, default=1 << 20, metavar="BYTES", help="less is alike; default: 1 MiB")
    one = commands.add_parser("pack", help="make one file a table of all that the nodes of a run wrote")
    one.add_argument("lake")
    for command in (add, ask, one):
        command.add_argument("--run", metavar="NAME")
    asked = parser.parse_args(arguments)
    try:
        if asked.command == "export":
            export(asked.ledger, asked.output, asked.run)
            print(asked.output)
        elif asked.command == "pack":
            print(f"{pack(asked.lake, asked.run)} files replaced")
        else:
            _print_different(different(asked.lake, asked.run, asked.at_least))
    except LedgerError as error:
        print(f"shardledger: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
