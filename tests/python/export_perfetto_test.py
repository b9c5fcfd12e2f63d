"""The export for Perfetto, read with the classes that are generated from the published proto."""

import collections
import re

import pytest
import readers
from exported import RUNS, SHOWN_PHASES, export, export_marks, pytestmark, rows  # noqa: F401

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


@pytest.fixture(scope="module")
def proto():
    """perfetto.protos of https://pypi.org/project/perfetto."""
    place = readers.install("perfetto==0.59.1", "protobuf>=5,<8", "--no-deps")
    with readers.importing(place):
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    return perfetto_trace_pb2


def unknown_fields(message, proto):
    """Fields, at any depth, that the published proto does not have."""
    from google.protobuf import unknown_fields as fields
    found = [(message.DESCRIPTOR.name, field.field_number) for field in fields.UnknownFieldSet(message)]
    for descriptor, value in message.ListFields():
        if descriptor.message_type:
            for inner in value if hasattr(value, "append") or hasattr(value, "add") else [value]:
                found += unknown_fields(inner, proto)
    return found


class Trace:
    def __init__(self, proto, path):
        self.message = proto.Trace()
        self.message.ParseFromString(path.read_bytes())
        self.tracks = {p.track_descriptor.uuid: p.track_descriptor for p in self.message.packet
                       if p.HasField("track_descriptor")}
        self.events = [p for p in self.message.packet if p.HasField("track_event")]

    def path(self, uuid):
        """Names from the process down to the track."""
        track = self.tracks[uuid]
        name = track.name or track.process.process_name or track.thread.thread_name
        return (self.path(track.parent_uuid) if track.parent_uuid else ()) + (name,)

    def series(self, *path):
        """Values of the counter tracks whose path ends like this, by process."""
        found = collections.defaultdict(list)
        for packet in self.events:
            event = packet.track_event
            if event.type == COUNTER and self.path(event.track_uuid)[1:] == path:
                found[self.path(event.track_uuid)[0]].append((packet.timestamp, event.counter_value))
        return dict(sorted(found.items()))


@pytest.fixture(scope="module", params=RUNS)
def exported(request, tmp_path_factory, proto):
    ledger, path = export(request.param, tmp_path_factory.mktemp("perfetto"), "perfetto", "run.pftrace")
    return ledger, Trace(proto, path)


@pytest.fixture(scope="module")
def training(tmp_path_factory, proto):
    ledger, path = export("fsdp2-2rank", tmp_path_factory.mktemp("perfetto"), "perfetto", "run.pftrace")
    return ledger, Trace(proto, path)


def test_it_is_the_published_proto(exported, proto):
    _, trace = exported
    assert len(trace.events) > 1000
    assert unknown_fields(trace.message, proto) == []
    assert all(packet.trusted_packet_sequence_id for packet in trace.message.packet)
    assert {event.track_event.track_uuid for event in trace.events} <= set(trace.tracks)
    assert all(not track.parent_uuid or track.parent_uuid in trace.tracks for track in trace.tracks.values())


def test_slices_of_a_track_open_and_close_in_order(exported):
    _, trace = exported
    open_slices, last = collections.Counter(), {}
    for packet in trace.events:
        event = packet.track_event
        if event.type in (BEGIN, END):
            assert packet.timestamp >= last.get(event.track_uuid, 0)
            last[event.track_uuid] = packet.timestamp
            open_slices[event.track_uuid] += 1 if event.type == BEGIN else -1
            assert open_slices[event.track_uuid] >= 0
            assert bool(event.name) == (event.type == BEGIN)
    assert set(open_slices.values()) == {0}


def slices(trace):
    """Each one's track, name, category and length."""
    stacks = collections.defaultdict(list)
    for packet in trace.events:
        event = packet.track_event
        if event.type == BEGIN:
            stacks[event.track_uuid].append((packet.timestamp, event.name, list(event.categories)))
        elif event.type == END:
            start, name, categories = stacks[event.track_uuid].pop()
            yield trace.path(event.track_uuid), name, (categories or [""])[0], packet.timestamp - start


def test_every_kernel_and_copy_is_a_slice_of_its_length(exported):
    ledger, trace = exported
    found, told = collections.Counter(), collections.Counter()
    for path, name, _, length in slices(trace):
        for part in path[1:]:
            stream = re.fullmatch(r"GPU (\d+) stream (\d+)( copies)?", part)
            if stream:
                found[int(stream[1]), int(stream[2]), name if stream[3] else "kernel", length] += 1
    names = {1: "copy HtoD", 2: "copy DtoH", 8: "copy DtoD"}
    for device, stream, name, length in rows(ledger, """
            SELECT device, stream, 'kernel', end_ns - start_ns FROM kernel
            UNION ALL SELECT device, stream, kind, end_ns - start_ns FROM memcpy
            UNION ALL SELECT device, stream, 'memset', end_ns - start_ns FROM memset"""):
        told[device, stream, names.get(name, name), length] += 1
    assert found == told and told


def test_every_phase_is_a_slice_of_its_length(exported):
    ledger, trace = exported
    found = collections.Counter((name, category, length) for _, name, category, length in slices(trace))
    told = collections.Counter()
    for name, kind, length in rows(ledger, "SELECT name, kind, coalesce(p.end_ns, r.end_ns) - p.start_ns FROM"
                                           f" {SHOWN_PHASES} p JOIN rank r USING (rank)"):
        told[name, kind, length] += 1
    assert told and all(found[slice] >= count for slice, count in told.items())
    assert {name for name, kind, _ in found if kind == "step"} == {name for name, kind, _ in told if kind == "step"}


def test_marks_are_instants_of_their_thread(tmp_path, proto):
    ledger, path = export_marks(tmp_path, "perfetto", "run.pftrace")
    trace = Trace(proto, path)
    marks = [packet for packet in trace.events if list(packet.track_event.categories) == ["mark"]]
    assert {trace.path(packet.track_event.track_uuid)[1:] for packet in marks} == {("main",)}
    zero = rows(ledger, "SELECT min(start_ns) FROM rank")[0][0]
    found = [(p.track_event.name, p.timestamp + zero, {a.name: a.string_value or a.int_value for a in
                                                       p.track_event.debug_annotations}) for p in marks]
    told = [(name, at, {key: value for key, value in {"domain": domain, "value": value, "module": "blocks.1",
                                                      "step": step}.items() if value is not None})
            for name, at, domain, value, step in rows(ledger, "SELECT name, at_ns, domain, value, step FROM mark ORDER BY at_ns")]
    assert told and found == told


def test_counters_give_every_steps_peak(training):
    ledger, trace = training
    zero = rows(ledger, "SELECT min(start_ns) FROM rank")[0][0]
    series = trace.series("allocated")
    assert len(series) == 2
    for rank, points in enumerate(series.values()):
        for start, end, peak in rows(ledger, "SELECT start_ns - ?, end_ns - ?, peak_allocated_bytes FROM step WHERE rank"
                                             " = ?", zero, zero, rank):
            before = [value for at, value in points if at <= start][-1]
            assert max([before] + [value for at, value in points if start < at <= end]) == peak


def test_categories_and_modules_sum_up_to_what_is_allocated(training):
    ledger, trace = training
    categories, modules = collections.Counter(), collections.Counter()
    last = {}
    for packet in trace.events:
        event = packet.track_event
        if event.type == COUNTER:
            last[trace.path(event.track_uuid)] = event.counter_value
    for path, value in last.items():
        if path[1] == "memory by category":
            categories[path[0]] += value
        if path[1] == "memory by module":
            modules[path[0]] += value
    for rank, (process, value) in enumerate(sorted((path[0], value) for path, value in last.items()
                                                   if path[1:] == ("allocated",))):
        assert categories[process] == value
        assert modules[process] == rows(ledger, "SELECT sum(bytes) FROM allocation WHERE rank = ? AND free_ns IS NULL AND"
                                                " module_id IS NOT NULL", rank)[0][0]
    names = {path[2] for path in last if path[1] == "memory by module"}
    assert "Transformer.blocks.0" in names


def test_flows_lead_from_each_call_to_its_kernel(exported):
    ledger, trace = exported
    calls, kernels = {}, {}
    for packet in trace.events:
        event = packet.track_event
        calls.update({flow: packet for flow in event.flow_ids})
        kernels.update({flow: packet for flow in event.terminating_flow_ids})
    assert len(calls) == rows(ledger, "SELECT count(*) FROM collective")[0][0]
    assert len(kernels) == rows(ledger, "SELECT count(*) FROM (SELECT DISTINCT rank, stream, start_ns FROM collective WHERE"
                                        " start_ns IS NOT NULL)")[0][0]
    assert bool(kernels) == bool(calls)
    for flow, kernel in kernels.items():
        assert kernel.track_event.name.startswith("nccl") and kernel.track_event.type == BEGIN
        assert calls[flow].timestamp < kernel.timestamp + 20000
        assert trace.path(calls[flow].track_event.track_uuid)[0] == trace.path(kernel.track_event.track_uuid)[0]


def test_threads_are_named_after_what_runs_on_them(exported):
    ledger, trace = exported
    for track in trace.tracks.values():
        if track.HasField("thread"):
            rank, tid = track.thread.pid - 1, track.thread.tid
            (pid,), = rows(ledger, "SELECT pid FROM rank WHERE rank = ?", rank)
            backward = rows(ledger, "SELECT 1 FROM phase WHERE rank = ? AND tid = ? AND kind = 'backward' LIMIT 1", rank, tid)
            assert track.thread.thread_name == ("main" if tid == pid else "backward" if backward else f"thread {tid}")
