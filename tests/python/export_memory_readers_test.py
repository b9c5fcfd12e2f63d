"""Programs of others that read the memory we write, as snapshots and folded stacks: what they count is the ledger's."""

import collections
import re

import readers
from exported import pytestmark, rows, written  # noqa: F401


def highest(events):
    """Of (order, what it adds) the highest sum."""
    level = top = 0
    for _, change in sorted(events):
        level += change
        top = max(top, level)
    return top


def changes(ledger, rank, size):
    """A rank's blocks as they come and go, with size, an SQL expression; within a microsecond as the snapshot has them."""
    return [change for at, until, number in rows(ledger, f"SELECT alloc_ns, complete_ns, {size} FROM allocation WHERE rank = ?", rank)
            for change in [((at, 1), number)] + ([((until, 3), -number)] if until is not None else [])]


ASK_PT_SNAP = """
import contextlib, io, os, pathlib, sys
os.environ["HOME"] = sys.argv[2]  # it has a configuration of its own
from pt_snap_cli.cli import app

def ask(path):
    found = {}
    for file in sorted(pathlib.Path(path).glob("*.pickle")):
        with contextlib.redirect_stdout(io.StringIO()):
            app(["import", str(file), "-o", path, "--no-focus", "--json"], standalone_mode=False)
        found[file.name[4:].split(".")[0]] = f"{file}.db"
    return found
"""


def test_pt_snap_imports_snapshots(written):
    """https://pypi.org/project/pt-snap-cli: the database that it makes, by its own replay of the allocator."""
    place = readers.install("pt-snap-cli==0.4.1")
    exports = written("snapshot", "snapshots")
    told = readers.ask(place, ASK_PT_SNAP, exports)
    for run, (ledger, _) in exports.items():
        for rank, device in rows(ledger, "SELECT rank, device FROM rank"):
            database = told[run][str(rank)]
            assert (rows(database, f"SELECT count(*), sum(requestedSize), sum(freeEventId < 0) FROM block_{device}")
                    == rows(ledger, "SELECT count(*), sum(requested_bytes), sum(complete_ns IS NULL) FROM allocation WHERE rank = ?", rank))
            # What is alive at the end it counts as it lies in the segments, everything else as it was requested.
            allocated = highest(changes(ledger, rank, "iif(complete_ns IS NULL, bytes, requested_bytes)"))
            reserved, = rows(ledger, "SELECT peak_reserved_bytes FROM life WHERE rank = ?", rank)[0]
            assert rows(database, f"SELECT max(allocated), max(reserved) FROM trace_entry_{device}") == [(allocated, reserved)], run
            assert dict(rows(database, f"""
                SELECT f.name, count(*) FROM trace_entry_{device} e JOIN callstack_frame s ON s.callstackId = e.callstackId
                JOIN frame f ON f.id = s.frameId WHERE f.filename = 'category' AND e.action = (SELECT key FROM dictionary WHERE
                  "table" = 'trace_entry_{device}' AND "column" = 'action' AND value = 'alloc') GROUP BY 1""")) == dict(rows(
                ledger, "SELECT category || coalesce(' (' || detail || ')', ''), count(*) FROM allocation WHERE rank = ? GROUP BY 1",
                rank)), run


ASK_PTMEM = """
import pathlib
from ptmem.cli import MemoryProfileData

def ask(path):
    found = {}
    for file in sorted(pathlib.Path(path).glob("*.pickle")):
        data = MemoryProfileData(str(file))
        found[file.name[4:].split(".")[0]] = {
            "highest": data.max_memory, "at first": data.initial_memory, "events": len(data.timeline_times) - 1,
            "sizes": sorted(block.size for block in data.allocations),
            "alive": sum(block.time_free > data.max_time for block in data.allocations)}
    return found
"""


def test_ptmem_replays_snapshots(written):
    """https://pypi.org/project/ptmem: what its timeline and its tables are made of."""
    place = readers.install("ptmem==0.1.2", "--no-deps")
    exports = written("snapshot", "snapshots")
    told = readers.ask(place, ASK_PTMEM, exports)
    for run, (ledger, _) in exports.items():
        for rank, in rows(ledger, "SELECT rank FROM rank"):
            of_rank = told[run][str(rank)]
            # It sets out from what rounding adds to the blocks that are alive at the end.
            rounded, alive = rows(ledger, "SELECT coalesce(sum(bytes - requested_bytes), 0), count(*) FROM allocation WHERE rank = ?"
                                          " AND complete_ns IS NULL", rank)[0]
            assert (of_rank["at first"], of_rank["alive"]) == (rounded, alive), run
            assert of_rank["highest"] == rounded + highest(changes(ledger, rank, "requested_bytes")), run
            assert of_rank["sizes"] == [size for size, in rows(ledger, "SELECT requested_bytes FROM allocation WHERE rank = ? ORDER BY 1",
                                                               rank)], run
            assert of_rank["events"] == rows(ledger, "SELECT count(*) + count(complete_ns) FROM allocation WHERE rank = ?", rank)[0][0]


FOLDED = re.compile(r"(.*) (\d+)")  # as flamegraph.pl and speedscope's importer of collapsed stacks read a line


def test_folded_stacks_are_lines_of_frames_and_bytes(written):
    for run, (ledger, file) in written("folded", "stacks.txt").items():
        lines = [FOLDED.fullmatch(line).groups() for line in file.read_text().splitlines()]
        stacks = [stack.split(";") for stack, _ in lines]
        assert len(set(map(tuple, stacks))) == len(stacks) > 0, run
        ranks = [rank for rank, in rows(ledger, "SELECT rank FROM life WHERE peak_allocated_bytes > 0 ORDER BY 1")]
        found, modules = collections.Counter(), collections.Counter()
        for stack, (_, size) in zip(stacks, lines):
            rank = int(stack.pop(0).removeprefix("rank ")) if len(ranks) > 1 else 0
            found[rank, stack[-1]] += int(size)
            if stack[0] == "(not recorded)" and len(stack) > 2:
                modules[rank, stack[1]] += int(size)
        peak = "life l JOIN period p ON p.rank = l.rank AND p.period = l.peak_period JOIN peak_owner o ON o.rank = p.rank AND o.period =" \
               " coalesce(p.same_as, p.period)"
        assert found == {(rank, category): size for rank, category, size in rows(
            ledger, f"SELECT o.rank, category, sum(bytes) FROM {peak} GROUP BY 1, 2 HAVING sum(bytes) > 0")}, run
        assert sum(found.values()) == rows(ledger, "SELECT sum(peak_allocated_bytes) FROM life")[0][0], run
        if not rows(ledger, "SELECT 1 FROM site LIMIT 1"):  # modules stand in for call stacks
            assert modules == {(rank, name): size for rank, name, size in rows(
                ledger, f"SELECT o.rank, m.name, sum(bytes) FROM {peak} JOIN module_name m ON m.id = o.module_id GROUP BY 1, 2"
                        " HAVING sum(bytes) > 0")}, run


def test_folded_stacks_name_the_ledgers_lines(written):
    ledger, file = written("folded", "stacks.txt")["sites"]
    found = collections.Counter()
    for line in file.read_text().splitlines():
        stack, size = FOLDED.fullmatch(line).groups()
        frames = [re.fullmatch(r"(.*) \((.*):(\d+)\)", frame) for frame in stack.split(";")]
        mine = [(frame[2], int(frame[3])) for frame in frames if frame and frame[2] == "/tmp/job.py"]
        found[mine[-1] if mine else None] += int(size)
    assert found.keys() > {None, ("/tmp/job.py", 31)}
    assert found == {(file, line) if file else None: size for file, line, size in rows(
        ledger, "SELECT file, line, sum(bytes) FROM life l JOIN line_at_peak p ON p.rank = l.rank AND p.period = l.peak_period"
                " GROUP BY 1, 2")}
