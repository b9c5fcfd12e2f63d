"""A lake of Parquet files is the ledgers that it was made of, row for row, in DuckDB and in Spark; docs/scale.md is true."""

import contextlib
import io
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest
from checks import once
from conftest import BUILD, LIBRARIES

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
COMMAND = os.path.abspath(os.path.join(BUILD, "bin", "shardledger"))
MAKE_FLEET = os.path.abspath(os.path.join(BUILD, "bin", "make_fleet"))

# Two jobs of FSDP2, one with NCCL's collectives in full, one out of memory, one killed, evaluation between steps; a fleet.
RECORDED = ("fsdp2-2rank", "fsdp2-2rank-recompute", "nccl-2rank", "oom-forward-2rank", "killed-2rank", "life/evaluation")
FLEET = ("--ranks", 24, "--steps", 6, "--more", "9:256:2:4", "--more", "16-23:64:1:1", "--leak", "3:4:2",
         "--killed", "5:4:0", "--absent", 11)
# Refused, killed, waiting; hosts whose clocks differ, one of which is compared through another.
DEATHS = ("--ranks", 12, "--per-host", 4, "--steps", 3, "--stages", 2, "--clock", "1:5000", "--clock", "2:-7000",
          "--refused", "9:2:0", "--killed", "4:2:50000", "--waits", "0-3,5-8,10-11:2:100000")
RUNS = (*RECORDED, "fleet", "deaths")
TYPES = {"INTEGER": "BIGINT", "REAL": "DOUBLE", "TEXT": "VARCHAR"}

pytestmark = pytest.mark.skipif(not os.path.exists(COMMAND), reason=f"{COMMAND} is not built")


def shardledger(*arguments, status=0, **variables):
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, env=dict(os.environ, **variables))
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr.strip() if status else done.stdout.strip()


def export(source, lake, *arguments, **options):
    return shardledger("export", source, "--format", "parquet", "-o", lake, "--python", sys.executable, *arguments, **options)


def files_of(lake):
    return {str(path.relative_to(lake)): path.stat().st_mtime_ns for path in lake.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def lake_module():
    pytest.importorskip("duckdb")
    pytest.importorskip("duckdb_extension_sqlite_scanner")
    from shardledger import lake

    return lake


@pytest.fixture(scope="module")
def fleet():
    return once.directory("lake/logs of the fleet", lambda directory: subprocess.run([MAKE_FLEET, directory, *map(str, FLEET)], check=True))


@pytest.fixture(scope="module")
def deaths():
    return once.directory("lake/logs of deaths", lambda directory: subprocess.run([MAKE_FLEET, directory, *map(str, DEATHS)], check=True))


@pytest.fixture(scope="module")
def made(lake_module, fleet, deaths):
    """(lake, {run: ledger}) of all runs in one lake."""
    names = {run: f"{run.replace('/', '-')}.sqlite" for run in RUNS}

    def make(scratch):
        for run, name in names.items():
            shardledger("ingest", {"fleet": fleet, "deaths": deaths}.get(run, DATA / run), "-o", scratch / name)
            export(scratch / name, scratch / "lake", "--name", pathlib.Path(name).stem)

    scratch = once.directory("lake/all", make)
    return scratch / "lake", {run: scratch / name for run, name in names.items()}


@pytest.fixture
def nodes(fleet, tmp_path):
    """The fleet's directories as its nodes would have them."""
    for process in fleet.iterdir():
        shutil.copytree(process, tmp_path / process.name[:len("gpu-node-00")] / process.name)
    return sorted(tmp_path.iterdir())


def ordered(rows):
    """Rows without the order, and with 1 apart from 1.0."""
    return sorted(((tuple((value is not None, type(value).__name__, value) for value in row)) for row in rows))


def sources(ledger, kind):
    """Their names; own_phase, of which ranks share rows, is the table phase in a lake."""
    names = [name for (name,) in ledger.execute("SELECT name FROM sqlite_schema WHERE type = ? ORDER BY rowid", (kind,))]
    own = {name[len("own_"):] for (name,) in ledger.execute("SELECT name FROM sqlite_schema WHERE name GLOB 'own_*'")}
    return [name for name in (name.removeprefix("own_") for name in names) if kind == "table" or name not in own]


@pytest.mark.parametrize("run", RUNS)
def test_every_table_is_equal_row_for_row(made, lake_module, run):
    lake, ledgers = made
    with contextlib.closing(sqlite3.connect(ledgers[run])) as ledger, \
            contextlib.closing(lake_module.connect(lake, ledgers[run].stem)) as database:
        tables = sources(ledger, "table")
        assert len(tables) > 30
        own = set(ledger.execute("SELECT name FROM sqlite_schema").fetchall())
        for table in tables:
            place = f"own_{table}" if (f"own_{table}",) in own else table  # a view's columns have no types
            declared = [(name, TYPES[kind]) for name, kind in ledger.execute("SELECT name, type FROM pragma_table_info(?)", (place,))]
            found = database.execute(f"SELECT * FROM {table}")
            assert [(column[0], str(column[1])) for column in found.description] == declared, table
            expected = ledger.execute(f"SELECT * FROM {table}").fetchall()
            assert ordered(found.fetchall()) == ordered(expected), table


@pytest.mark.parametrize("run", RUNS)
def test_every_view_answers_in_duckdb_as_in_sqlite(made, lake_module, run):
    lake, ledgers = made
    with contextlib.closing(sqlite3.connect(ledgers[run])) as ledger, \
            contextlib.closing(lake_module.connect(lake, ledgers[run].stem)) as database:
        views = sources(ledger, "view")
        assert len(views) > 20
        for view in views:
            expected, found = ledger.execute(f"SELECT * FROM {view}"), database.execute(f"SELECT * FROM {view}")
            assert [column[0] for column in found.description] == [column[0] for column in expected.description], view
            assert {str(column[1]) for column in found.description} <= set(TYPES.values()), view
            assert ordered(found.fetchall()) == ordered(expected.fetchall()), view


@pytest.mark.parametrize("run", ("fsdp2-2rank", "oom-forward-2rank", "deaths"))
def test_every_view_answers_in_spark_as_in_sqlite(made, lake_module, run):
    sql = pytest.importorskip("pyspark.sql", reason="no PySpark here: pip install pyspark, and a Java 17 or later")
    if shutil.which("java") is None:
        pytest.skip("PySpark needs Java 17 or later")
    lake, ledgers = made
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "1",
                "spark.sql.codegen.wholeStage": "false", "spark.sql.adaptive.enabled": "false"}  # for few rows the fastest
    builder = sql.SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        lake_module.spark_views(session, lake, run)
        with contextlib.closing(sqlite3.connect(ledgers[run])) as ledger:
            for source in sources(ledger, "table") + sources(ledger, "view"):
                expected, found = ledger.execute(f"SELECT * FROM {source}"), session.table(source)
                assert found.columns == [column[0] for column in expected.description], source
                assert {kind for _, kind in found.dtypes} <= {"bigint", "double", "string"}, source
                assert ordered(tuple(row) for row in found.collect()) == ordered(expected.fetchall()), source
    finally:
        session.stop()


def test_the_views_are_those_of_this_build():
    pytest.importorskip("sqlglot")
    done = subprocess.run([sys.executable, ROOT / "scripts" / "update-lake-views", "--check"], capture_output=True, text=True,
                          env=dict(os.environ, SHARDLEDGER_BUILD_DIR=os.path.abspath(BUILD)))
    assert done.returncode == 0, done.stdout + done.stderr


def test_nodes_export_their_own_ranks_and_make_one_run(nodes, fleet, lake_module, tmp_path):
    for node in nodes:
        assert export(node, tmp_path / "lake") == str(tmp_path / "lake")
    (run,) = lake_module.runs(tmp_path / "lake")  # nobody named it: the communicator of all ranks has the same id on each
    assert sorted(path.name for path in (tmp_path / "lake" / "period" / f"run={run}").iterdir()) == [
        "ranks-00000-00007.parquet", "ranks-00008-00015.parquet", "ranks-00016-00023.parquet"]
    shardledger("ingest", fleet, "-o", tmp_path / "whole.sqlite")
    with contextlib.closing(sqlite3.connect(tmp_path / "whole.sqlite")) as ledger, \
            contextlib.closing(lake_module.connect(tmp_path / "lake")) as database:
        # Only who met whom takes all ranks at once, and which ranks are the same; what has no id of its own in the log is numbered within its ledger.
        for source in set(sources(ledger, "table") + sources(ledger, "view")) - {
                "meta", "attempt", "collective_meeting", "collective_cost", "straggler", "segment", "host_segment", "rank_group",
                "rank_difference", "rank_rows"}:
            expected = ledger.execute(f"SELECT * FROM {source}").fetchall()
            assert ordered(database.execute(f"SELECT * FROM {source}").fetchall()) == ordered(expected), source


def test_a_packed_run_has_one_file_a_table_and_the_same_rows(nodes, lake_module, tmp_path):
    lake = tmp_path / "lake"
    for node in nodes:
        export(node, lake, "--name", "one")
    export(nodes[0], lake, "--name", "other")
    before = files_of(lake)

    def answers():
        with contextlib.closing(lake_module.connect(lake, "one")) as database:
            names = [name for (name,) in database.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()]
            return {name: ordered(database.execute(f"SELECT * FROM {name}").fetchall()) for name in names}

    expected = answers()
    assert lake_module.pack(lake, "one") == len([path for path in before if "/run=one/" in path])
    assert answers() == expected
    after = files_of(lake)
    packed = [path for path in after if "/run=one/" in path]
    assert packed and all(path.endswith("/run=one/ranks-00000-00023.parquet") for path in packed)
    assert {path: time for path, time in after.items() if "/run=one/" not in path} == {
        path: time for path, time in before.items() if "/run=one/" not in path}
    assert "which the ledger lacks" in export(nodes[0], lake, "--name", "one", status=2)


def test_a_rerun_replaces_its_own_ranks_of_its_own_run(nodes, lake_module, tmp_path):
    lake = tmp_path / "lake"
    (late,) = (process for process in nodes[0].iterdir() if "-1007-" in process.name)
    late.rename(tmp_path / "late")  # another last rank gives the files another name
    export(nodes[0], lake, "--name", "first")
    export(nodes[1], lake, "--name", "first")
    export(nodes[0], lake, "--name", "second")
    before = files_of(lake)
    assert sorted(lake_module.runs(lake)) == ["first", "second"]
    (tmp_path / "late").rename(late)
    shardledger("ingest", nodes[0])
    export(nodes[0], lake, "--name", "first")
    after = files_of(lake)
    own = {path for path in before if "run=first/ranks-00000" in path}
    kept = {path for path in before if "/run=" in path} - own
    assert own and not own & set(after)
    assert {path: after[path] for path in kept} == {path: before[path] for path in kept}
    with contextlib.closing(lake_module.connect(lake, "first")) as database:
        assert [rank for (rank,) in database.execute("SELECT rank FROM rank ORDER BY rank").fetchall()] == [
            *range(11), *range(12, 16)]
    assert not [path for path in after if path.endswith(".part")]


def test_a_ledger_that_lacks_ranks_of_a_file_does_not_replace_it(nodes, fleet, lake_module, tmp_path):
    shardledger("ingest", fleet, "-o", tmp_path / "whole.sqlite")
    export(tmp_path / "whole.sqlite", tmp_path / "lake", "--name", "one")
    before = files_of(tmp_path / "lake")
    said = export(nodes[0], tmp_path / "lake", "--name", "one", status=2)
    assert "has ranks 0-7 of this run, but also 8-10,12-23, which the ledger lacks" in said
    assert files_of(tmp_path / "lake") == before


def test_python_writes_the_same_lake(made, lake_module, tmp_path):
    import shardledger as package

    _, ledgers = made
    with package.open(ledgers["fsdp2-2rank"]) as ledger:
        run = ledger.to_parquet(tmp_path / "lake")
        assert re.fullmatch("[0-9a-f]{16}", run)
        with contextlib.closing(lake_module.connect(tmp_path / "lake")) as database:
            assert database.execute("SELECT count(*) FROM allocation").fetchone()[0] == \
                ledger.rows("SELECT count(*) AS rows FROM allocation")[0]["rows"]


@pytest.mark.parametrize("of_nodes", (False, "each", "packed"))
def test_what_is_different_is_found_with_owner_and_step(made, nodes, lake_module, tmp_path, of_nodes):
    lake, ledgers = made
    if of_nodes:  # compared with the median, else as `ranks` has it: both find the same
        lake = tmp_path / "lake"
        for node in nodes:
            export(node, lake, "--name", "fleet")
    if of_nodes == "packed":
        lake_module.pack(lake, "fleet")
    rows = lake_module.different(lake, "fleet")
    told = {lake_module.ranges(row["ranks"]): row for row in rows}
    mib = 1 << 20
    assert set(told) == {"9", "16-23", "3", "5", "11"}
    assert (told["16-23"]["bytes"], told["16-23"]["since_step"], told["16-23"]["whole_hosts"]) == (64 * mib, 1, True)
    assert (told["16-23"]["what"], told["16-23"]["module"], told["16-23"]["phase"]) == ("activation", "blocks.1", "forward")
    assert (told["9"]["bytes"], told["9"]["since_step"], told["9"]["module"]) == (256 * mib, 4, "blocks.2")
    assert told["9"]["hosts"] == ["gpu-node-01"] and not told["9"]["whole_hosts"]
    assert (told["3"]["per_step_bytes"], told["3"]["since_step"]) == (4 * mib, 2)
    assert told["5"]["what"] == "stopped after step 4"
    assert told["11"]["what"] == "not recorded"
    assert [abs(row["bytes"]) for row in rows if row["bytes"]] == sorted((abs(row["bytes"]) for row in rows if row["bytes"]), reverse=True)
    if of_nodes:
        return
    assert lake_module.different(lake, "fsdp2-2rank") == []
    with contextlib.closing(sqlite3.connect(ledgers["fleet"])) as ledger:
        facts = ledger.execute(
            "SELECT g.list, d.bytes, d.bytes_per_step, d.since_step, d.category || coalesce('/' || d.detail, ''), "
            "coalesce(d.module, ''), coalesce(d.phase, ''), (SELECT group_concat(rank) FROM rank_group o WHERE o.group_number = d.next_to "
            "AND d.next_to > 0) FROM rank_difference d JOIN (SELECT group_number, group_concat(rank) AS "
            "list FROM (SELECT * FROM rank_group ORDER BY rank) GROUP BY group_number) g USING (group_number)").fetchall()
    assert sorted(facts, key=str) == sorted([(",".join(map(str, row["ranks"])), row["bytes"], row["per_step_bytes"], row["since_step"],
                                     row["what"], row["module"], row["phase"], row["next_to"] and ",".join(map(str, row["next_to"])))
                                    for row in rows if row["bytes"]], key=str)


STAGES = ("--ranks", 32, "--per-host", 8, "--steps", 8, "--mesh", "pp:4", "--mesh", "dp:8", "--more", "8-15:64:0:0", "--more", "16-23:128:1:0",
          "--more", "24-31:200:2:0", "--more", "20:96:3:3", "--leak", "10:8:1")


@pytest.mark.parametrize("of_nodes", (False, True))
def test_in_a_pipeline_each_rank_is_compared_with_its_own_stage(lake_module, tmp_path, of_nodes):
    run, lake = tmp_path / "run", tmp_path / "lake"
    subprocess.run([MAKE_FLEET, run, *map(str, STAGES)], check=True)
    if of_nodes:
        for process in list(run.iterdir()):
            node = tmp_path / process.name[:len("gpu-node-00")]
            node.mkdir(exist_ok=True)
            process.rename(node / process.name)
        for node in sorted(tmp_path.glob("gpu-node-*")):
            export(node, lake, "--name", "stages")
    else:
        export(run, lake, "--name", "stages")
    rows = lake_module.different(lake)
    mib = 1 << 20
    told = {lake_module.ranges(row["ranks"]): (row["bytes"], row["since_step"], row["module"], lake_module.ranges(row["next_to"] or []))
            for row in rows}
    assert told.pop("20") == (96 * mib, 3, "blocks.3", "16-23" if of_nodes else "16-19,21-23")
    leaking, = [row for row in rows if row["per_step_bytes"]]
    assert (leaking["ranks"], leaking["per_step_bytes"], leaking["since_step"]) == ([10], 8 * mib, 1)
    assert lake_module.ranges(leaking["next_to"]) == ("8-15" if of_nodes else "8-9,11-15")
    del told["10"]
    if of_nodes:  # next to the stage in the middle
        assert told == {"0-7": (-64 * mib, 0, "blocks.0", "8-15"), "16-23": (64 * mib, 0, "blocks.1", "8-15"),
                        "24-31": (136 * mib, 0, "blocks.2", "8-15")}
    else:  # next to the largest group
        assert told == {"8-9,11-15": (64 * mib, 0, "blocks.0", ""), "16-19,21-23": (128 * mib, 0, "blocks.1", ""),
                        "24-31": (200 * mib, 0, "blocks.2", "")}


def test_without_duckdb_one_sentence_says_how_to_get_it(made, tmp_path):
    _, ledgers = made
    (tmp_path / "duckdb.py").write_text("raise ImportError\n")
    said = export(ledgers["fsdp2-2rank"], tmp_path / "lake", status=2, PYTHONPATH=str(tmp_path))
    assert said == (f"shardledger: Parquet needs DuckDB, which {sys.executable} lacks: {sys.executable} -m pip install duckdb "
                    "duckdb-extension-sqlite-scanner, or name the Python that has it with --python")
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("arguments, said", [
    (("--python", "/no/python"), "export: /no/python can't be run: No such file or directory"),
    (("--name", "../out"), "a run's name has letters, digits"),
])
def test_what_can_not_be_is_said(made, tmp_path, arguments, said):
    _, ledgers = made
    assert said in export(ledgers["fsdp2-2rank"], tmp_path / "lake", *arguments, status=2)
    assert not (tmp_path / "lake").exists()


def test_options_of_parquet_are_refused_elsewhere(made, tmp_path):
    _, ledgers = made
    said = shardledger("export", ledgers["fsdp2-2rank"], "--format", "nsys", "-o", tmp_path / "x", "--name", "a", status=2)
    assert said == "shardledger: export: --name needs --format parquet"


def test_where_no_lake_can_be_is_said(made, lake_module, tmp_path):
    _, ledgers = made
    (tmp_path / "file").write_text("")
    assert "can't be written" in export(ledgers["fsdp2-2rank"], tmp_path / "file", status=2)
    with pytest.raises(lake_module.LedgerError, match="no lake here"):
        lake_module.connect(tmp_path)
    lake, _ = made
    with pytest.raises(lake_module.LedgerError, match="say which run"):
        lake_module.connect(lake)
    with pytest.raises(lake_module.LedgerError, match="there is no run 'other' here"):
        lake_module.connect(lake, "other")


def test_a_part_of_a_job_without_a_common_communicator_needs_a_name(nodes, lake_module, tmp_path):
    shardledger("ingest", nodes[0], "-o", tmp_path / "part.sqlite")
    with contextlib.closing(sqlite3.connect(tmp_path / "part.sqlite")) as ledger:
        ledger.execute("DELETE FROM communicator")
        ledger.commit()
    assert "name it with --name NAME" in export(tmp_path / "part.sqlite", tmp_path / "lake", status=2)


def test_the_page_of_scale_runs_in_order(lake_module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for node, process in enumerate(sorted(path for path in (DATA / "fsdp2-2rank").iterdir() if path.is_dir())):
        shutil.copytree(process, pathlib.Path(f"node{node}") / "shardledger-out" / process.name)
    shutil.copytree(DATA / "fsdp2-2rank", "shardledger-out")
    environment = dict(os.environ, PYTHONPATH=os.path.join(os.path.abspath(LIBRARIES), "python"), PATH=os.pathsep.join(
        [os.path.dirname(COMMAND), os.path.dirname(sys.executable), os.environ["PATH"]]))
    names, printed, ran = {}, io.StringIO(), 0
    page = (ROOT / "docs" / "scale.md").read_text()
    for match in re.finditer(r"^```(python|sh)\n(.*?)^```", page, re.M | re.S):
        if match[1] == "sh":
            subprocess.run(["bash", "-euc", match[2]], check=True, env=environment, stdout=subprocess.DEVNULL)
        else:
            with contextlib.redirect_stdout(printed):
                exec(compile(match[2], f"scale.md, block {ran + 1}", "exec"), names)
        ran += 1
    assert ran >= 5
    assert len(printed.getvalue().splitlines()) > 3
