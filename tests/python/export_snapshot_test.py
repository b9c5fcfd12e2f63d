"""The export as PyTorch's memory snapshot: read by torch's own functions, and by the rules of its web viewer."""

import collections
import pickle
import pickletools

import pytest
from exported import export, pytestmark, rows  # noqa: F401
from torch.cuda import _memory_viz

# What MemoryViz.js' own unpickler knows, of what we write.
VIEWER = {"PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "SETITEMS", "APPENDS", "BINUNICODE", "BINPUT", "BINGET", "BININT",
          "LONG1", "NEWTRUE", "NEWFALSE", "TUPLE2", "STOP"}


@pytest.fixture(scope="module", params=["fsdp2-2rank", "fsdp2-2rank-recompute", "nccl-2rank"])
def exported(request, tmp_path_factory):
    ledger, directory = export(request.param, tmp_path_factory.mktemp("snapshot"), "snapshot", "snapshots")
    return ledger, [directory / f"rank{rank}.pickle" for rank in range(2)]


def snapshots(files):
    return [pickle.loads(file.read_bytes()) for file in files]


def test_the_web_viewer_can_unpickle_it(exported):
    for file in exported[1]:
        items = 0
        for opcode, _, _ in pickletools.genops(file.read_bytes()):
            assert opcode.name in VIEWER
            items = 0 if opcode.name == "APPENDS" else items + (opcode.name == "SETITEMS")
            assert items < 10000, "it has all items of a list on its stack"


def test_segments_and_blocks_are_those_at_the_end(exported):
    ledger, files = exported
    for rank, snapshot in enumerate(snapshots(files)):
        reserved = allocated = 0
        live = []
        for segment in snapshot["segments"]:
            assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
            address = segment["address"]
            for block in segment["blocks"]:
                assert block["address"] == address
                address += block["size"]
                if block["state"] == "active_allocated":
                    live.append((segment["device"], block["address"], block["size"], block["requested_size"]))
            assert segment["allocated_size"] == sum(block["size"] for block in segment["blocks"]
                                                    if block["state"] == "active_allocated")
            reserved += segment["total_size"]
            allocated += segment["allocated_size"]
        assert sorted(live) == rows(ledger, "SELECT device, address, bytes, requested_bytes FROM allocation WHERE rank = ?"
                                            " AND free_ns IS NULL ORDER BY 1, 2", rank)
        assert reserved == rows(ledger, "SELECT sum(bytes) FROM segment WHERE rank = ? AND owner = 'pytorch' AND free_ns"
                                        " IS NULL", rank)[0][0]


def test_traces_replay_to_that_end_and_to_every_steps_peak(exported):
    ledger, files = exported
    for rank, snapshot in enumerate(snapshots(files)):
        (trace,) = [trace for trace in snapshot["device_traces"] if trace]
        live, total, series, segments = {}, 0, [], {}
        for event in trace:
            if event["action"] == "alloc":
                assert event["addr"] not in live
                live[event["addr"]] = event["size"]
                total += event["size"]
            elif event["action"] == "free_requested":
                total -= event["size"]
            elif event["action"] == "free_completed":
                assert live.pop(event["addr"]) == event["size"]
            elif event["action"] == "segment_alloc":
                segments[event["addr"]] = event["size"]
            else:
                assert event["action"] == "segment_free" and segments.pop(event["addr"]) == event["size"]
            series.append((event["time_us"], total))
        blocks = {block["address"]: block["requested_size"] for segment in snapshot["segments"]
                  for block in segment["blocks"] if block["state"] != "inactive"}
        assert live == blocks
        assert segments == {segment["address"]: segment["total_size"] for segment in snapshot["segments"]}
        for start, end, peak in rows(ledger, "SELECT start_ns / 1000, end_ns / 1000, peak_requested_bytes FROM step WHERE"
                                             " rank = ?", rank):
            assert max(total for at, total in series if start <= at <= end) == peak


def test_torchs_own_functions_read_it(exported):
    ledger, files = exported
    for rank, snapshot in enumerate(snapshots(files)):
        summary = _memory_viz.segsum(snapshot)  # checks the sums itself
        assert f"segments: {len(snapshot['segments'])}\n" in summary
        assert f"Device {rank} -" in _memory_viz.trace(snapshot)
        assert "Active Memory Timeline" in _memory_viz.trace_plot(snapshot)
        assert "Allocator State History" in _memory_viz.segment_plot(snapshot)
        lines = _memory_viz.memory(snapshot, format_flamegraph=lambda text: text).splitlines()
        assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == sum(s["total_size"] for s in snapshot["segments"])


def test_blocks_say_category_module_and_phase_where_torch_has_stacks(tmp_path):
    ledger, directory = export("fsdp2-2rank", tmp_path, "snapshot", "snapshots")
    snapshot = pickle.loads((directory / "rank0.pickle").read_bytes())
    allocs = [event for event in snapshot["device_traces"][0] if event["action"] == "alloc"]
    assert collections.Counter(event["category"] for event in allocs) == dict(rows(
        ledger, "SELECT category, count(*) FROM allocation WHERE rank = 0 GROUP BY 1"))
    assert any([(frame["filename"], frame["name"]) for frame in event["frames"][:3]] == [
        ("category", "activation"), ("module", "Transformer.blocks.0"), ("phase", "forward blocks.0")] and
        event["frames"][-1]["filename"].endswith("/fsdp2_train.py") and event["frames"][-1]["line"] > 0 for event in allocs)
    # Its legend breaks when a snapshot has categories and none of them is "unknown".
    assert "unknown" in {event.get("category") for event in snapshot["device_traces"][0]}


def test_ranges_are_annotations_as_torch_records_them(exported):
    """In the form of _record_memory_history(global_record_annotations=True): a start and an end each, in order."""
    ledger, files = exported
    for rank, snapshot in enumerate(snapshots(files)):
        annotations = snapshot["external_annotations"]
        assert [a["time_us"] for a in annotations] == sorted(a["time_us"] for a in annotations)
        assert {a["device"] for a in annotations} == {rank}
        for stage, column in (("START", "start_ns"), ("END", "end_ns")):
            told = collections.Counter((a["name"], a["time_us"]) for a in annotations if a["stage"] == stage)
            assert told == collections.Counter(rows(ledger, f"SELECT name, {column} / 1000 FROM phase WHERE rank = ? AND {column}"
                                                            " IS NOT NULL", rank))
        assert len(annotations) > 10
