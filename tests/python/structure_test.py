"""The C sources as a house: who may include whom, what each file opens with, how long files and functions may be."""

import collections
import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = {str(path.relative_to(ROOT)): path.read_text() for top in ("plugin", "nvtx_ranges", "storage", "viewer")
           for path in sorted((ROOT / top).rglob("*")) if path.suffix in (".c", ".h", ".cpp", ".def")}
C = [name for name in SOURCES if name.endswith((".c", ".h")) and not name.startswith("nvtx_ranges")]

# From the ground up: a folder includes those before it. plugin/shardledger.h and storage/ledger.h are what these offer as a whole.
FLOORS = ["nvtx_ranges/kinds", "plugin/shardledger", "plugin/format", "plugin/process", "plugin/log", "plugin/driver",
          "plugin/sources", "plugin", "nvtx_ranges", "storage", "storage/log", "storage/allocator", "storage/rules",
          "storage/phases", "storage/attribution", "storage/tracker", "storage/tables/declared", "storage/tables",
          "storage/code", "storage/collectives", "storage/device", "storage/snapshot", "storage/rank", "storage/run",
          "storage/predict/tape", "storage/predict/shards", "storage/predict/changes", "storage/predict/replay",
          "storage/advise", "storage/ledger", "storage/live", "storage/trim", "viewer/output", "viewer", "viewer/exports",
          "viewer/serve", "viewer/commands", "viewer/report"]
GENERATED = {"viewer_sql.h", "storage/tables/sql_text.h"}

# Functions above 60 lines, and why they are one.
LONG = {
    "print_ranks": "one row's cells in the order of its columns",
    "sl_cmd_run": "what happens around the user's command, in its order",
    "take": "one case an event type",
    "on_event": "one case an event type",
    "sl_open_run": "what a name may mean, each case with its own sentence",
    "advance_by_any": "the states of one reader, drawn above it",
    "print_map": "one table of lines, in the order of addresses",
    "sl_cmd_whatif": "the list of its options",
    "sl_cmd_export": "the options of all formats, checked before any is written",
    "stage_step": "one case a stage",
}


def floor(name):
    stem = name.rsplit(".", 1)[0]
    return FLOORS.index(stem if stem in FLOORS else str(pathlib.PurePosixPath(name).parent))


def includes():
    found = collections.defaultdict(list)
    for name, text in SOURCES.items():
        for included in re.findall(r'^\s*#\s*include "([^"]+)"', text, re.M):
            places = (pathlib.PurePosixPath(name).parent, "", "viewer", "plugin", "plugin/format")
            there = [place for place in (os.path.normpath(os.path.join(at, included)) for at in places) if place in SOURCES]
            assert there or included in GENERATED, f"{name} includes {included}, which is none of ours"
            found[name] += there[:1]
    return found


def test_no_file_includes_itself_through_others():
    found, done = includes(), set()

    def visit(name, path):
        assert name not in path, " → ".join([*path[path.index(name):], name])
        if name not in done:
            for other in found[name]:
                visit(other, [*path, name])
            done.add(name)

    for name in SOURCES:
        visit(name, [])
    assert len(done) > 500


def test_no_folder_includes_one_above_it():
    upward = [f"{name} includes {other}" for name, others in includes().items() for other in others if floor(other) > floor(name)]
    assert not upward, "\n".join(upward)


def test_every_file_opens_with_what_it_is_for():
    silent = [name for name in C if not SOURCES[name].startswith(("/*", "//"))]
    assert not silent, silent


def test_no_file_is_above_600_lines():
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for top in ("plugin", "nvtx_ranges", "storage", "viewer")
             for path in (ROOT / top).rglob("*") if path.suffix in (".c", ".h", ".cpp", ".def", ".sql", ".py", ".js", ".css")
             and not path.name.startswith(("views.duckdb", "views.spark"))}  # generated
    long = {name: count for name, count in lines.items() if count > 600}
    assert not long, long


def functions(text):
    """(name, lines) of each, as clang-format writes them: from a line that begins at the left to a `}` there."""
    for match in re.finditer(r"^(?!struct|enum|union|typedef|static const|const)\w[^;={}]*?\b(\w+)\([^;{}]*\)\s*\{\n.*?^\}$", re.sub(r"__attribute__\(\(\w+\)\) ", "", text), re.M | re.S):
        yield match[1], match[0].count("\n") + 1


def test_functions_above_60_lines_have_a_reason():
    long = {name: lines for file in C for name, lines in functions(SOURCES[file]) if lines > 60}
    assert not {name: lines for name, lines in long.items() if name not in LONG}
    assert not LONG.keys() - long.keys(), "these are short by now"


@pytest.mark.parametrize("text, found", [("int f(int a) {\n  return a;\n}\n", [("f", 3)]), ("struct s {\n  int a;\n};\n", []),
                                         ("static int\nlong_name(int a,\n  int b) {\n}\n", [("long_name", 4)])])
def test_functions_are_found(text, found):
    assert list(functions(text)) == found


def test_pages_name_only_files_that_are_there():
    tops = "plugin|storage|viewer|nvtx_ranges|bench|scripts|tests|docs"
    named = {(page.name, path) for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
             for path in re.findall(rf"(?<![\w/.$}}-])((?:{tops})/[\w/.-]+\.\w+)\b", page.read_text())}
    assert len(named) > 40
    assert not {(page, path) for page, path in named if not (ROOT / path).exists()}
