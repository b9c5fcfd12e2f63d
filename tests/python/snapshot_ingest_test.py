"""`shardledger ingest snapshot.pickle`: PyTorch's own memory snapshots, held against what PyTorch's allocator did.

The truth is an allocator that shares no code with ShardLedger (torch_allocator.py), and for the recorded files in tests/data/snapshots
PyTorch's own statistics.
"""

import collections
import functools
import json
import lzma
import pathlib
import pickle
import random
import shutil
import subprocess
import tarfile

import pytest
from exported import COMMAND, ROOT, pytestmark, rows  # noqa: F401
from torch_allocator import Allocator, snapshot

RECORDED = sorted((ROOT / "tests" / "data" / "snapshots").glob("*.json"))
VERSIONS = sorted((ROOT / "tests" / "data" / "snapshots" / "versions").glob("torch-*.tar.xz"))
MAIN = [{"name": "forward", "filename": "/job/model.py", "line": 12},
        {"name": "_call_impl", "filename": "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", "line": 1776},
        {"name": "main", "filename": "/job/train.py", "line": 40}]
OTHER = [{"name": "step", "filename": "/job/optim.py", "line": 7}, MAIN[2]]


def run(*arguments, status=0):
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == status, (arguments, done.stdout[-2000:], done.stderr[-2000:])
    return done


def written(directory, data, name="snapshot.pickle", protocol=4):
    path = directory / name
    path.write_bytes(data if isinstance(data, bytes) else pickle.dumps(data, protocol))
    return path


def ingested(directory, data, **how):
    path = written(directory, data, **how)
    ledger = path.with_suffix(".sqlite")
    assert run("ingest", path).stdout == f"{ledger}\n"
    return ledger


# ---- what the ledger says at an event of a device's history ----


@functools.lru_cache(maxsize=2)
def life_of(ledger, changed):  # changed: a ledger that was made again is another one
    never = 1 << 60
    return (rows(ledger, f"SELECT device, coalesce(alloc_event, 0), coalesce(free_event, {never}), coalesce(complete_event, {never}), bytes,"
                         " requested_bytes FROM allocation"),
            rows(ledger, "SELECT device, event, iif(action IN ('free', 'unmap'), -bytes, bytes) FROM allocator_segment"
                         " WHERE action <> 'refused'"))


def sums_at(ledger, device, event):
    allocations, segments = life_of(ledger, ledger.stat().st_mtime_ns)
    there = [row for row in allocations if row[0] == device and row[1] <= event < row[3]]
    return {"allocated": sum(bytes for _, _, freed, _, bytes, _ in there if event < freed),
            "active": sum(row[4] for row in there), "requested": sum(row[5] for row in there),
            "reserved": sum(bytes for of, at, bytes in segments if of == device and at <= event)}


def looks_of(trace):
    """Where in a history somebody looked: numbers of events, from 1."""
    return [at for at, entry in enumerate(trace, 1) if entry["action"] == "snapshot"]


def assert_same(ledger, data, device, looks, quantities=("allocated", "active", "requested", "reserved")):
    """looks: the latest ones, one for each entry `snapshot` of the device's history."""
    events = looks_of(data["device_traces"][device])
    assert len(events) == len(looks)
    for event, look in zip(events, looks):
        now = sums_at(ledger, device, event)
        assert {name: now[name] for name in quantities} == {name: look[name] for name in quantities}, event


def assert_whole(ledger):
    assert rows(ledger, "SELECT sum(events_lost) FROM rank") == [(0,)]
    assert rows(ledger, "SELECT source, reason FROM gap") == []
    assert rows(ledger, "SELECT DISTINCT checked FROM period WHERE kind = 'whole'") == [(1,)]


# ---- an allocator's life ----


def lived(seed, device=0, expandable=False, operations=600, streams=(0, 7)):
    """A program that allocates and frees at random, and looks at the statistics now and then."""
    chance, allocator, held_back = random.Random(seed), Allocator(device, expandable), []
    sizes = [1, 512, 513, 700_000, 1 << 20, (1 << 20) + 1, 3 << 20, 9_999_999, 10 << 20, 12_345_678]
    for at in range(operations):
        if allocator.live and chance.random() < 0.48:
            late = chance.random() < 0.2
            block = allocator.free(chance.choice(sorted(allocator.live)), late)
            held_back += [block] if late else []
        else:
            allocator.malloc(chance.choice(sizes) + chance.randrange(300), chance.choice(streams), chance.choice((MAIN, OTHER, ())))
        if held_back and chance.random() < 0.3:
            allocator.complete(held_back.pop(0))
        if chance.random() < 0.01:
            allocator.empty_cache()
        if at % 10 == 0:
            allocator.look()
    allocator.look()
    return allocator


@pytest.mark.parametrize("expandable", [False, True], ids=["segments", "expandable"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_look_of_a_whole_history_is_exact(tmp_path, protocol, expandable):
    allocator = lived(protocol, expandable=expandable)
    data = snapshot([allocator])
    ledger = ingested(tmp_path, data, protocol=protocol)
    assert_same(ledger, data, 0, allocator.looks)
    assert_whole(ledger)
    assert rows(ledger, "SELECT fidelity, restored_allocations, clean_exit, device FROM rank") == [("snapshot", 0, None, 0)]
    highest = max(look["allocated"] for look in allocator.looks)
    assert rows(ledger, "SELECT peak_allocated_bytes FROM life_peak")[0][0] >= highest


@pytest.mark.parametrize("expandable", [False, True], ids=["segments", "expandable"])
@pytest.mark.parametrize("last", [1, 5, 50, 200, 500])
@pytest.mark.parametrize("seed", range(3))
def test_a_history_that_begins_late_begins_with_what_was_there(tmp_path, seed, last, expandable):
    allocator = lived(100 + seed, expandable=expandable)
    data = snapshot([allocator], last=last)
    ledger = ingested(tmp_path, data)
    count = len(looks_of(data["device_traces"][0]))
    # What was held back from another stream's use at the beginning is active without an allocation of its own.
    assert_same(ledger, data, 0, allocator.looks[-count:], ("allocated", "reserved"))
    assert_whole(ledger)
    assert rows(ledger, "SELECT DISTINCT category, detail FROM allocation WHERE alloc_event IS NULL") == [
        ("unattributed", "before_attach")]


def test_one_that_is_not_split_keeps_its_rest_also_before_the_history(tmp_path):
    allocator = Allocator()
    first, second = allocator.malloc(5 << 20), allocator.malloc(6 << 20)  # side by side in one segment
    allocator.free(first)
    kept = allocator.malloc((5 << 20) - 600_000)  # takes all of the 5 MiB: the rest is too small to be a block
    assert kept == first
    allocator.free(second)  # from now on nothing but free memory is behind it
    del allocator.trace[:]  # recording begins here
    allocator.look()
    behind = allocator.malloc(4 << 20)
    assert behind == second
    allocator.free(kept)
    allocator.look()
    ledger = ingested(tmp_path, snapshot([allocator]))
    assert_same(ledger, snapshot([allocator]), 0, allocator.looks)
    assert_whole(ledger)


def test_without_a_history_it_is_one_moment(tmp_path):
    allocator = lived(7)
    ledger = ingested(tmp_path, snapshot([allocator], last=0))
    sums = allocator.sums()
    assert sums_at(ledger, 0, 0)["allocated"] == sums["allocated"]
    assert rows(ledger, "SELECT peak_allocated_bytes, peak_active_bytes, peak_requested_bytes, peak_reserved_bytes FROM life_peak") == [
        (sums["allocated"], sums["active"], sums["requested"], sums["reserved"])]
    assert_whole(ledger)
    # Blocks have stacks where PyTorch kept them ("state").
    lines = rows(ledger, "SELECT f.file || ':' || f.line, count(*) FROM allocation a JOIN site s ON s.id = a.site_id JOIN frame f"
                         " ON f.id = s.line_id GROUP BY 1 ORDER BY 1")
    told = collections.Counter(f"{block.frames[0]['filename']}:{block.frames[0]['line']}" for block in allocator.live.values()
                               if block.frames)
    assert lines == sorted(told.items())


def test_segments_alone_as_memory_snapshot_gives_them(tmp_path):
    allocator = lived(8)
    ledger = ingested(tmp_path, allocator.told_segments())
    assert sums_at(ledger, 0, 0)["allocated"] == allocator.sums()["allocated"]


def test_several_devices(tmp_path):
    allocators = [lived(20, device=0), lived(21, device=2, operations=300)]
    data = snapshot(allocators)
    ledger = ingested(tmp_path, data)
    for allocator in allocators:
        assert_same(ledger, data, allocator.device, allocator.looks)
    assert rows(ledger, "SELECT reason FROM gap") == []


# ---- fields of other versions ----


def without(entries, *keys):
    return [{key: value for key, value in entry.items() if key not in keys} for entry in entries]


# What a version's history and snapshot have, by struct TraceEntry, SnapshotInfo and the enum Action of its headers (of the wheels of
# PyPI: c10/cuda/CUDACachingAllocator.h, later c10/core/CachingDeviceAllocator.h).
LACKS = {"2.4.1": ("compile_context", "user_metadata", "external_annotations"), "2.5.1": ("compile_context", "user_metadata"),
         "2.7.1": ("compile_context", "user_metadata"), "2.9.1": ("user_metadata",), "2.11.0": (), "2.15.0": ()}


@pytest.mark.parametrize("version", LACKS)
@pytest.mark.parametrize("last", [None, 120], ids=["whole", "late"])
def test_the_fields_of_each_version_are_read(tmp_path, version, last):
    allocator = lived(33)
    data = snapshot([allocator], last=last)
    looks = allocator.looks[-len(looks_of(data["device_traces"][0])):]
    told = {key: value for key, value in data.items() if key not in LACKS[version]}
    trace = without(data["device_traces"][0], *LACKS[version])
    if version == "2.15.0":  # its Action has ANNOTATE, which moves no bytes
        middle = trace[len(trace) // 2]
        trace.insert(len(trace) // 2, {"action": "annotate", "addr": 0, "size": 0, "stream": 0, "time_us": middle["time_us"]})
    told["device_traces"] = [trace]
    ledger = ingested(tmp_path, told)
    assert_whole(ledger)
    assert_same(ledger, told, 0, looks, ("allocated", "reserved"))


def test_a_version_without_addresses_times_and_settings(tmp_path):
    """torch/csrc/cuda/Module.cpp of 2.0: blocks have no address, entries no time, and there is no more than two keys."""
    allocator = lived(30)
    data = snapshot([allocator])
    old = {"segments": [{**segment, "blocks": without(segment["blocks"], "address", "requested_size")}
                        for segment in without(data["segments"], "segment_pool_id", "is_expandable")],
           "device_traces": [without(data["device_traces"][0], "time_us", "compile_context", "user_metadata")]}
    ledger = ingested(tmp_path, old)
    assert_same(ledger, data, 0, allocator.looks)


def test_skipped_free_requests_are_told_at_the_end_of_each_free(tmp_path):
    """skip_actions=["free_requested"], of 2.11: what could be used again is all that is known."""
    allocator = lived(31, streams=(0,))
    data = snapshot([allocator])
    data["device_traces"][0] = [e for e in data["device_traces"][0] if e["action"] != "free_requested"]
    ledger = ingested(tmp_path, data)
    assert rows(ledger, "SELECT sum(events_lost) FROM rank") == [(0,)]
    assert rows(ledger, "SELECT reason FROM source")[0][0].endswith("memory counts until it could be used again")
    alive = rows(ledger, "SELECT sum(bytes) FROM allocation WHERE complete_event IS NULL")[0][0]
    assert alive == allocator.sums()["active"]


def test_metadata_annotations_and_stacks_become_names_ranges_and_lines(tmp_path):
    allocator = Allocator()
    at = lambda: allocator.clock + 1  # noqa: E731
    notes = [{"name": "epoch", "stage": "START", "device": 0, "time_us": at()}]
    weights = allocator.malloc(1000, metadata="weights ü", frames=MAIN)
    notes.append({"name": "Optimizer.step#AdamW.step", "stage": "START", "device": 0, "time_us": at()})
    allocator.malloc(2000, frames=OTHER)
    notes.append({"name": "Optimizer.step#AdamW.step", "stage": "END", "device": 0, "time_us": at()})
    notes.append({"name": "epoch", "stage": "END", "device": 0, "time_us": at()})
    notes.append({"name": "lost its start", "stage": "END", "device": 0, "time_us": at()})
    allocator.malloc(3000)
    ledger = ingested(tmp_path, snapshot([allocator], annotations=notes))
    assert rows(ledger, "SELECT requested_bytes, note, category FROM allocation ORDER BY 1") == [
        (1000, "weights ü", "unattributed"), (2000, None, "optstate"), (3000, None, "unattributed")]
    assert rows(ledger, "SELECT name FROM phase ORDER BY start_ns") == [("epoch",), ("Optimizer.step#AdamW.step",)]
    assert rows(ledger, "SELECT p.name FROM allocation a LEFT JOIN phase p ON p.id = a.phase_id ORDER BY requested_bytes") == [
        ("epoch",), ("Optimizer.step#AdamW.step",), (None,)]
    line = rows(ledger, "SELECT f.file, f.line, f.function, f.code_of FROM allocation a JOIN site s ON s.id = a.site_id JOIN frame f ON"
                        " f.id = s.line_id WHERE a.address = ?", weights)
    assert line == [("/job/model.py", 12, "forward", "user")]
    depth = rows(ledger, "SELECT max(depth) FROM frame")[0][0]
    assert depth == 2
    ruled = tmp_path / "my.rules"
    ruled.write_text("note weights* category mine\n")
    run("ingest", tmp_path / "snapshot.pickle", "--rules", ruled)
    assert rows(ledger, "SELECT requested_bytes FROM allocation WHERE category = 'mine'") == [(1000,)]


def test_ranges_of_two_threads_that_cross_leave_what_is_made_in_both_without_one(tmp_path):
    allocator = Allocator()
    notes = []

    def note(name, stage):
        allocator.clock += 3
        notes.append({"name": name, "stage": stage, "device": 0, "time_us": allocator.clock})

    note("one", "START")
    allocator.malloc(1000)
    note("two", "START")
    allocator.malloc(2000)
    note("one", "END")
    allocator.malloc(3000)
    note("two", "END")
    ledger = ingested(tmp_path, snapshot([allocator], annotations=notes))
    assert rows(ledger, "SELECT requested_bytes, p.name FROM allocation a LEFT JOIN phase p ON p.id = a.phase_id ORDER BY 1") == [
        (1000, "one"), (2000, None), (3000, "two")]


def test_frames_of_cpp_stay_in_the_stack_and_name_no_line(tmp_path):
    """stacks="all": the innermost frames are PyTorch's C++, and threads without Python have nothing else."""
    cpp = [{"name": "at::empty(...)", "filename": "??", "line": 0}, {"name": "at::detail::empty(...)", "filename": "", "line": 0},
           {"name": "torch::autograd::run", "filename": "/src/engine.cpp", "line": 40}]
    allocator = Allocator()
    allocator.malloc(1000, frames=cpp + MAIN)
    allocator.malloc(2000, frames=cpp)
    allocator.malloc(3000, frames=[cpp[0], MAIN[1], MAIN[2]])
    ledger = ingested(tmp_path, snapshot([allocator]))
    stacks = rows(ledger, "SELECT requested_bytes, i.depth, i.code_of, f.file, f.line FROM allocation a JOIN site s ON s.id = a.site_id"
                          " JOIN frame i ON i.id = s.frame_id LEFT JOIN frame f ON f.id = s.line_id ORDER BY 1")
    assert stacks == [(1000, 5, "native", "/job/model.py", 12), (2000, 2, "native", None, None), (3000, 2, "native", "/job/train.py", 40)]


def test_a_refused_request_is_named_with_its_line(tmp_path):
    allocator = lived(40, operations=40)
    allocator._note("oom", 123 << 20, 5 << 30, 0, key="device_free", frames=MAIN)
    path = written(tmp_path, snapshot([allocator]))
    said = run("oom", path).stdout
    assert "5.00 GiB" in said and "123.0 MiB" in said and "/job/model.py:12" in said, said
    assert rows(path.with_suffix(".sqlite"), "SELECT requested_bytes, free_bytes FROM oom") == [(5 << 30, 123 << 20)]


# ---- several ranks ----


def test_ranks_are_those_of_the_names(tmp_path):
    for rank in (0, 3, 12):
        written(tmp_path, snapshot([lived(50 + rank, operations=50)]), f"snapshot_rank{rank}.pickle")
    files = sorted(tmp_path.glob("*.pickle"))
    assert run("ingest", *files).stdout == f"{tmp_path}/snapshot.sqlite\n"
    assert rows(tmp_path / "snapshot.sqlite", "SELECT rank FROM rank ORDER BY 1") == [(0,), (3,), (12,)]
    assert run("ingest", tmp_path).stdout == f"{tmp_path}/ledger.sqlite\n"
    assert rows(tmp_path / "ledger.sqlite", "SELECT rank FROM rank ORDER BY 1") == [(0,), (3,), (12,)]
    assert "3 ranks" in run("ranks", tmp_path).stdout or run("peaks", tmp_path, "--by", "rank").stdout


def test_ranks_without_names_are_in_the_order_given(tmp_path):
    one, other = (written(tmp_path, snapshot([lived(seed, operations=operations)]), name)
                  for seed, operations, name in ((60, 50, "b.pickle"), (61, 90, "a.pickle")))
    run("ingest", one, other, "-o", tmp_path / "both.sqlite")
    assert rows(tmp_path / "both.sqlite", "SELECT rank, events FROM rank ORDER BY events") == [
        (rank, events) for rank, events in rows(tmp_path / "both.sqlite", "SELECT rank, events FROM rank ORDER BY rank")]


@pytest.mark.parametrize("names, says", [
    (("rank1.pickle", "more_rank1.pickle"), "are both of rank 1; name one file a rank"),
    (("rank1.pickle", "other.pickle"), "tells its rank and "),
])  # fmt: skip
def test_ranks_that_are_not_clear_are_refused(tmp_path, names, says):
    files = [written(tmp_path, snapshot([lived(70, operations=20)]), name) for name in names]
    assert says in refused(*files)


# ---- what is refused ----


def refused(*files):
    done = run("ingest", *files, status=2)
    assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


class Trap:
    """A pickle that leaves a file where it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_code_is_never_run(tmp_path, protocol):
    trap = tmp_path / "run"
    path = written(tmp_path, {"segments": [], "device_traces": [Trap(trap)]}, protocol=protocol)
    assert "asks to load or call Python code (" in refused(path)
    assert not trap.exists()
    pickle.loads(path.read_bytes())["device_traces"][0].close()
    assert trap.exists(), "Python itself runs it, so the test means something"


@pytest.mark.parametrize("data, says", [
    (b"", "is empty"),
    (b"PK\x03\x04and more", "is a zip archive"),
    (b"\x1f\x8b\x08", "is compressed; unpack it"),
    (b"(dp0\n.", "is no pickle of protocol 2 or later"),
    (b"\x80\x09.", "a protocol that this shardledger does not read"),
    (pickle.dumps({"weights": [1, 2]}, 4), "is a pickle, but no memory snapshot of PyTorch"),
    (pickle.dumps([1, 2], 4), "is a pickle, but no memory snapshot of PyTorch"),
    (pickle.dumps("text", 4), "is a pickle, but no memory snapshot of PyTorch"),
])  # fmt: skip
def test_what_is_no_snapshot_gives_one_sentence(tmp_path, data, says):
    assert says in refused(written(tmp_path, data))


def test_damaged_files_give_one_sentence_or_a_ledger(tmp_path):
    chance = random.Random(1)
    whole = {protocol: pickle.dumps(snapshot([lived(80, operations=30)], annotations=[
        {"name": "a", "stage": "START", "device": 0, "time_us": 5}]), protocol) for protocol in (2, 4)}
    path = tmp_path / "snapshot.pickle"
    ended = collections.Counter()
    for turn in range(150):
        data = bytearray(whole[2 + 2 * (turn % 2)])
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(2, len(data))] = chance.randrange(256)
        if turn % 5 == 0:
            del data[chance.randrange(2, len(data)):]
        path.write_bytes(data)
        done = subprocess.run([COMMAND, "ingest", path], capture_output=True, text=True, errors="replace")
        ended[done.returncode] += 1
        assert done.returncode in (0, 2), (turn, done.returncode, done.stderr)
        assert done.stderr.count("\n") <= 1, done.stderr
        assert done.returncode == 0 or done.stderr.startswith(f"shardledger: {path}"), done.stderr
    assert ended[2] > 50 and ended[0] > 5, ended


# ---- every command ----

BY = ("module", "category", "step", "rank", "line", "operator", "stack", "idle")
QUESTIONS = [["info"], ["peaks"], *(["peaks", "--by", by] for by in BY), ["snapshots"], ["nccl"], ["survivors"], ["ranks"],
             ["dump"], ["oom"], ["device", "--segments"], ["device", "--segments", "--at", "peak"],
             ["query", "SELECT count(*) FROM allocation"], ["check", "--max-peak", "1GiB"],
             ["whatif", "--alloc-conf", "max_split_size_mb:200"], ["whatif", "--device-memory", "80GiB"], ["whatif", "--floor"]]
# One sentence says why not.
SAID = {("device",): "the device was not sampled", ("advise",): "there is nothing to advise on",
        ("device", "--segments", "--by", "step"): "are in no step of this record",
        ("check", "--max-growth", "1KiB/step"): "growth can't be told from 0 steps",
        ("watch", "--once"): "is a memory snapshot, which does not grow"}


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    return written(tmp_path_factory.mktemp("asked"), snapshot([lived(90)]))


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_commands_answer(asked, question):
    command, *rest = question
    arguments = [*rest, asked] if command == "query" else [asked, *rest]
    assert run(command, *arguments).stdout


@pytest.mark.parametrize("format", ["nsys", "kineto", "perfetto", "snapshot", "folded", "pprof"])
def test_exports_answer(asked, tmp_path, format):
    run("export", asked, "--format", format, "-o", tmp_path / "out")


def test_a_report_is_made(asked, tmp_path):
    run("report", asked, "-o", tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_folded_stacks_are_those_of_the_snapshot(asked, tmp_path):
    run("export", asked, "--format", "folded", "-o", tmp_path / "folded")
    assert "main" in (tmp_path / "folded").read_text() and "forward" in (tmp_path / "folded").read_text()


@pytest.mark.parametrize("question", SAID, ids=" ".join)
def test_what_it_can_not_tell_is_one_sentence(asked, question):
    command, *rest = question
    done = run(command, asked, *rest, status=2)
    assert SAID[question] in done.stderr, done.stderr


def test_an_exported_run_comes_back_with_the_same_allocations(tmp_path):
    shutil.copytree(ROOT / "tests" / "data" / "fsdp2-2rank", tmp_path / "run")
    run("export", tmp_path / "run", "--format", "snapshot", "-o", tmp_path / "exported")
    run("ingest", tmp_path / "exported")
    of = "SELECT rank, address, requested_bytes, bytes FROM allocation WHERE free_ns IS NULL ORDER BY 1, 2"
    assert rows(tmp_path / "exported" / "ledger.sqlite", of) == rows(tmp_path / "run" / "ledger.sqlite", of)
    peak = "SELECT rank, peak_allocated_bytes FROM life_peak ORDER BY 1"
    assert rows(tmp_path / "exported" / "ledger.sqlite", peak) == rows(tmp_path / "run" / "ledger.sqlite", peak)


# ---- recorded on a GPU ----


@pytest.mark.parametrize("told", RECORDED or [None], ids=lambda path: path.stem if path else "none")
def test_recorded_snapshots_are_pytorchs_to_the_byte(tmp_path, told):
    if told is None:
        pytest.skip("tests/data/snapshots has no recordings: tests/gpu/snapshots/record.py makes them on a GPU")
    assert_pytorchs(tmp_path, json.loads(told.read_text()), lzma.decompress(told.with_suffix(".pickle.xz").read_bytes()))


def assert_pytorchs(directory, truth, data):
    found = pickle.loads(data)
    ledger = ingested(directory, data, name=f"{truth['job']}.pickle")
    assert rows(ledger, "SELECT sum(events_lost) FROM rank") == [(0,)]
    assert rows(ledger, "SELECT source, reason FROM gap") == []
    for device, trace in enumerate(found["device_traces"]):
        compare_looks(ledger, truth, trace, device)
    compare_end(ledger, found, truth)
    compare_names(ledger, truth)


def compare_looks(ledger, truth, trace, device):
    events = looks_of(trace)
    if truth["job"] == "skipped" or not events:
        return
    looks = [look["devices"][device] for look in truth["looks"]][len(truth["looks"]) - len(events):]
    quantities = ("allocated", "reserved") if truth["job"].endswith(("ring", "late")) else ("allocated", "active", "requested", "reserved")
    for event, look in zip(events, looks):
        now = sums_at(ledger, device, event)
        assert {name: now[name] for name in quantities} == {name: look[name]["current"] for name in quantities}, (device, event)


def compare_end(ledger, found, truth):
    """Sums of the blocks that are there, and of PyTorch's statistics where they were read with the snapshot."""
    last = 1 << 40
    for device in {segment["device"] for segment in found["segments"]}:
        mine = [segment for segment in found["segments"] if segment["device"] == device]
        now = sums_at(ledger, device, last)
        assert now["allocated"] == sum(segment["allocated_size"] for segment in mine)
        assert now["reserved"] == sum(segment["total_size"] for segment in mine)
        if truth.get("stats"):
            assert now["allocated"] == truth["stats"][device]["allocated"]["current"]
            assert now["reserved"] == truth["stats"][device]["reserved"]["current"]


def compare_names(ledger, truth):
    """What the job named is named in the ledger, and at a refused request the device had what the observer was told."""
    if truth["job"] == "metadata":
        assert {note for note, in rows(ledger, "SELECT DISTINCT note FROM allocation")} == {None, "weights", "training ü"}
    if truth["job"] == "annotations":
        ranges = collections.Counter(name for name, in rows(ledger, "SELECT name FROM phase"))
        assert {name: ranges[name] for name in ("setup", "part one", "part two", "inner")} == {"setup": 1, "part one": 1, "part two": 1, "inner": 2}
    refused = rows(ledger, "SELECT free_bytes FROM oom")
    assert refused[-1:] == ([(truth["refused"]["free"],)] if "refused" in truth else [])


def test_the_recordings_cover_each_case():
    """Where there are recordings, each job of the script is among them."""
    if not RECORDED:
        pytest.skip("tests/data/snapshots has no recordings: tests/gpu/snapshots/record.py makes them on a GPU")
    script = pathlib.Path(ROOT / "tests" / "gpu" / "snapshots" / "record.py").read_text()
    jobs = {line.split('"')[1] for line in script.split("JOBS = {")[1].split("}")[0].replace(", ", ",\n").splitlines() if '"' in line}
    assert {path.stem for path in RECORDED} >= jobs - {"two-devices"}


# ---- recorded without a GPU, with the allocator, history and statistics of each version ----


def recorded_by(archive):
    """[(what the statistics said, the snapshot)] of each job."""
    with tarfile.open(archive) as members:
        content = {member.name: members.extractfile(member).read() for member in members}
    return [(json.loads(text), lzma.decompress(content[name.replace(".json", ".pickle.xz")]))
            for name, text in content.items() if name.endswith(".json")]


@pytest.mark.parametrize("archive", VERSIONS, ids=lambda path: path.name.partition(".tar")[0])
def test_snapshots_of_each_version_are_its_pytorchs_to_the_byte(tmp_path, archive):
    for truth, data in recorded_by(archive):
        assert f"torch-{truth['torch'].partition('+')[0]}.tar.xz" == archive.name
        assert_pytorchs(tmp_path, truth, data)


def test_each_version_that_a_release_has_a_bridge_for_is_recorded_with_the_jobs_that_it_can(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "gpu" / "snapshots"))
    import record_versions

    releases = record_versions.releases()
    assert {path.name for path in VERSIONS} == {f"torch-{version}.tar.xz" for version in releases} and len(releases) > 11
    for version in releases:
        jobs = {truth["job"] for truth, _ in recorded_by(VERSIONS[0].with_name(f"torch-{version}.tar.xz"))}
        assert jobs == set(record_versions.jobs_of(version)), version
