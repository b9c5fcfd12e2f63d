"""shardledger.open: what a recorded run is in Python."""

import html
import inspect
import json
import os
import pathlib
import pkgutil
import pydoc
import re
import shutil
import sqlite3
import subprocess
import sys

import pandas
import pytest
import shardledger
from conftest import BUILD, LIBRARIES, PLUGIN
from shardledger._companion.answers.report import Report
from shardledger.ledger import LedgerError

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
COMMAND = os.path.join(BUILD, "bin", "shardledger")

pytestmark = pytest.mark.skipif(not os.path.exists(COMMAND), reason=f"{COMMAND} is not built")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run directory without a ledger."""
    return shutil.copytree(DATA / "fsdp2-2rank", tmp_path_factory.mktemp("ledger") / "run")


@pytest.fixture
def ledger(run):
    with shardledger.open(run) as ledger:
        yield ledger


def truth(run):
    return [json.loads(line) for rank in (0, 1) for line in (run / f"truth.rank{rank}").read_text().splitlines()]


def test_a_run_directory_is_ingested_and_its_steps_are_what_pytorch_counted(run):
    with shardledger.open(run) as ledger:
        steps = ledger.steps()
    assert (run / "ledger.sqlite").exists()
    found = set(zip(steps["rank"], steps.step, steps.peak_allocated_bytes, steps.peak_reserved_bytes))
    assert found >= {(row["rank"], row["step"], row["allocated_peak"], row["reserved_peak"]) for row in truth(run)}


def test_a_file_is_opened_as_it_is(run, ledger, tmp_path):
    copy = shutil.copy(ledger.path, tmp_path / "a name with ? and #.sqlite")
    with shardledger.open(copy) as other:
        assert other.ranks()["rank"].tolist() == [0, 1]
    assert os.listdir(tmp_path) == ["a name with ? and #.sqlite"]


def test_keywords_choose_rows(ledger):
    peaks = ledger.peaks(rank=1, phase="backward")
    assert set(peaks["rank"]) == {1} and set(peaks.phase) == {"backward"}
    whole = ledger.peaks(rank=1, module_id=None, phase="step")
    assert whole.allocated_bytes.tolist() == ledger.steps(rank=1).peak_allocated_bytes.tolist()
    with pytest.raises(LedgerError, match="no column 'fase'.*phase"):
        ledger.peaks(fase="backward")
    with pytest.raises(LedgerError, match="no table or view 'peeks'"):
        ledger.table("peeks")


def test_every_accessor_has_the_rows_of_its_table(ledger):
    from shardledger.ledger import _ACCESSORS

    with sqlite3.connect(ledger.path) as database:
        for name, source, _ in _ACCESSORS:
            (count,) = database.execute(f"SELECT count(*) FROM {source}").fetchone()
            frame = getattr(ledger, name)()
            assert (len(frame), list(frame.columns)) == (count, ledger.tables[source]), name
            assert source in getattr(type(ledger), name).__doc__


def test_numbers_are_exact_also_where_some_are_missing(ledger):
    frame = ledger.query("SELECT alloc_ns, free_ns FROM allocation ORDER BY id")
    assert frame.alloc_ns.dtype == "int64" and frame.free_ns.dtype == "Int64"
    with sqlite3.connect(ledger.path) as database:
        exact = [value for (value,) in database.execute("SELECT free_ns FROM allocation ORDER BY id")]
    assert None in exact
    assert [None if pandas.isna(value) else int(value) for value in frame.free_ns] == exact
    assert any(value is not None and int(float(value)) != value for value in exact)  # a float would have lost some


def test_columns_of_one_name_and_empty_results_keep_their_columns(ledger):
    assert list(ledger.query("SELECT 1 AS a, 2 AS a").columns) == ["a", "a"]
    empty = ledger.query("SELECT rank, step FROM step WHERE step < 0")
    assert (list(empty.columns), len(empty)) == (["rank", "step"], 0)


def test_an_empty_table_keeps_the_types_of_its_columns(ledger):
    full, empty = ledger.allocations(rank=0), ledger.allocations(rank=99)
    assert len(full) > 0 == len(empty) and list(full.columns) == list(empty.columns)
    assert empty["bytes"].dtype.name == "Int64" and empty["category"].dtype == object
    assert (empty["bytes"].sum(), empty.merge(full, on="id").shape[0]) == (0, 0)


def test_a_ledger_shows_its_peaks_in_a_notebook(ledger):
    shown = ledger._repr_html_()
    for row in ledger.rows("SELECT place, peak_allocated_bytes AS bytes FROM life_peak"):
        assert f"{row['bytes'] / 2**30:.2f} GiB" in shown and row["place"] in shown
    assert "<script" not in shown


def test_the_package_says_its_version_and_that_it_is_typed():
    here = pathlib.Path(shardledger.__file__).parent
    assert (here / "py.typed").exists()
    done = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert shardledger.__version__ in done.stdout.split()
    assert [name for name in dir(shardledger) if not name.startswith("_") and not inspect.ismodule(getattr(shardledger, name))
            and name != "annotations"] == sorted(set(shardledger.__all__) - {"__version__"})


def test_help_lists_what_is_for_users_and_one_package_that_is_not():
    shown = pydoc.render_doc(shardledger, renderer=pydoc.plaintext)
    contents = shown.partition("PACKAGE CONTENTS\n")[2].partition("\n\n")[0].split("\n")
    assert [line.strip() for line in contents] == [
        "__main__", "_companion (package)", "integrations (package)", "kinds", "lake", "ledger", "trackers"]
    assert "_companion" not in dir(shardledger) and "_guard" not in dir(shardledger)
    internal = {name for _, name, _ in pkgutil.walk_packages(shardledger.__path__, "shardledger.") if "._" in name}
    assert len(internal) > 40 and {"shardledger._companion.hooks.steps", "shardledger._companion.tagging.tags"} < internal


def test_parameters_go_in_by_place_or_name(ledger):
    assert ledger.rows("SELECT step FROM step WHERE rank = ? AND step = ?", (1, 2)) == [{"step": 2}]
    assert ledger.rows("SELECT step FROM step WHERE rank = :r AND step = :s", {"r": 1, "s": 2}) == [{"step": 2}]


def test_nothing_can_be_written(ledger):
    with pytest.raises(LedgerError, match="readonly"):
        ledger.rows("DELETE FROM period")
    with pytest.raises(LedgerError, match="no such column: spet"):
        ledger.rows("SELECT spet FROM step")


@pytest.mark.parametrize("make, words", [
    (lambda path: None, "no such file or directory"),
    (lambda path: path.mkdir(), "shardledger run"),
    (lambda path: path.write_text("not a database"), "run"),
    (lambda path: sqlite3.connect(path).execute("CREATE TABLE t(x)"), "no ledger"),
])
def test_what_is_no_run_is_refused_in_words(make, words, tmp_path):
    make(tmp_path / "run")
    with pytest.raises(LedgerError, match=words) as caught:
        shardledger.open(tmp_path / "run")
    assert "Traceback" not in str(caught.value) and len(str(caught.value)) < 300


def python(program, **more):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SHARDLEDGER_")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600,
                          env=dict(environment, PYTHONPATH=os.path.join(LIBRARIES, "python"), **more))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_reading_a_run_records_nothing_and_imports_no_torch(run, tmp_path):
    program = f"import shardledger, sys; shardledger.open({str(run)!r}).steps(); print('torch' in sys.modules)"
    assert python(program, NVTX_INJECTION64_PATH=PLUGIN, SHARDLEDGER_DIR=str(tmp_path / "log")) == ["False"]
    assert not (tmp_path / "log").exists()


def test_recording_imports_nothing_that_only_reading_needs(tmp_path):
    program = "import shardledger, sys; shardledger.attach(); print(*({'pandas', 'sqlite3', 'subprocess'} & set(sys.modules)))"
    assert python(program, NVTX_INJECTION64_PATH=PLUGIN, SHARDLEDGER_DIR=str(tmp_path / "log")) == []


def test_without_pandas_rows_work_and_it_is_said_what_to_install(run):
    program = ("import sys; sys.modules['pandas'] = None; import shardledger\n"
               f"ledger = shardledger.open({str(run)!r}); print(len(ledger.rows('SELECT * FROM rank')))\n"
               "try: ledger.ranks()\nexcept Exception as error: print(error)")
    count, *words = python(program)
    assert count == "2" and " ".join(words[-6:]) == "pip install pandas (rows() works without)"


def test_a_report_shows_itself_in_a_notebook_and_can_be_kept(tmp_path):
    page = "<!doctype html><title>\"peak\" & 'more' of <b>α</b></title>"
    report = Report("run.sqlite", lambda *words: pathlib.Path(words[-1]).write_text(page, encoding="utf-8"))
    shown = re.fullmatch(r'<iframe [^>]*srcdoc="([^"]*)"></iframe>', report._repr_html_())
    assert html.unescape(shown[1]) == page
    assert pathlib.Path(report.save(tmp_path / "kept.html")).read_text(encoding="utf-8") == page


def test_the_report_of_a_run_is_the_one_of_the_command(ledger, tmp_path):
    subprocess.run([COMMAND, "report", ledger.path, "-o", tmp_path / "report.html"], check=True, capture_output=True)
    assert ledger.report().html == (tmp_path / "report.html").read_text(encoding="utf-8")


def test_an_older_sqlite_is_named(run, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(LedgerError, match="3.35"):
        shardledger.open(run)


def test_the_peak_of_a_life_names_its_period(ledger):
    life = ledger.life(rank=0).iloc[0]
    assert life.peak_allocated_bytes == max(ledger.query("SELECT peak_allocated_bytes AS bytes FROM period WHERE rank = 0").bytes)
    assert ledger.periods(rank=0, period=int(life.period)).place.tolist() == [life.place]
    assert set(ledger.peaks(rank=0, period=int(life.period)).place) == {life.place}
