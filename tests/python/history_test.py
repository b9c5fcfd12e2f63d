"""The fallback's translation of PyTorch's memory history."""

import os
import sys

import pytest

from shardledger.kinds import ACTION, ACTION_OTHER

ENTRIES = [
    {"action": "segment_alloc", "addr": 4096, "size": 2097152, "stream": 0, "time_us": 1},
    {"action": "alloc", "addr": 4096, "size": 100, "stream": 7, "time_us": 2, "segment_pool_id": (0, 3)},
    {"action": "oom", "device_free": 12345, "size": 1 << 40, "stream": 0, "time_us": 3},
    {"action": "something new", "addr": 1, "size": 2, "stream": 3},
]


def test_entries_become_allocator_events_in_order(companion):
    history = sys.modules["shardledger._companion.allocations.history"]
    for at_ns, entry in enumerate(ENTRIES):
        history.emit(1, entry, at_ns)
    assert companion.calls == [
        ("allocator_event_at", 1, ACTION["segment_alloc"], 4096, 2097152, 0, 0, 0, 0),
        ("allocator_event_at", 1, ACTION["alloc"], 4096, 100, 7, 0, 3, 1),
        ("allocator_event_at", 1, ACTION["oom"], 12345, 1 << 40, 0, 0, 0, 2),
        ("allocator_event_at", 1, ACTION_OTHER, 1, 2, 3, 0, 0, 3),
    ]


def test_entries_of_all_devices_come_by_time_each_device_in_its_own_order(companion, monkeypatch):
    import time
    import torch

    history = sys.modules["shardledger._companion.allocations.history"]
    entry = lambda address, **time_us: {"action": "alloc", "addr": address, "size": 1, "stream": 0, **time_us}
    traces = [[entry(1, time_us=5), entry(2, time_us=9)], [entry(3, time_us=4), entry(4, time_us=7), entry(5, time_us=7)]]
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": traces})
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **options: None)
    before = time.time_ns()
    history.read()
    assert [(call[1], call[3], call[-1]) for call in companion.calls[:-1]] == [
        (1, 3, 4500), (0, 1, 5500), (1, 4, 7500), (1, 5, 7500), (0, 2, 9500)]
    assert companion.calls[-1][0] == "allocator_told" and before <= companion.calls[-1][1] <= time.time_ns()
    traces[:] = [[entry(1), entry(2)]]
    companion.calls.clear()
    history.read()
    assert [call[-1] for call in companion.calls[:2]] == [0, 0], "a version of PyTorch that does not say when"


def test_what_was_read_is_cleared_and_not_read_again(companion, monkeypatch):
    import torch

    history = sys.modules["shardledger._companion.allocations.history"]
    recorded = []
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": [[], ENTRIES[:2]]})
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **options: recorded.append(options))
    history.read()
    assert [call[:3] for call in companion.calls.named("allocator_event_at")] == [
        ("allocator_event_at", 1, ACTION["segment_alloc"]), ("allocator_event_at", 1, ACTION["alloc"])]
    assert recorded[0]["clear_history"] is True and recorded[0]["context"] is None


SEGMENTS = [
    {"device": 1, "address": 4096, "stream": 7, "segment_pool_id": (0, 3), "blocks": [
        {"size": 1024, "requested_size": 1000, "state": "active_allocated"},
        {"size": 512, "requested_size": 512, "state": "active_pending_free"},
        {"size": 2048, "requested_size": 0, "state": "inactive"}]},
    {"device": 1, "address": 65536, "stream": 7, "blocks": [
        {"size": 4096, "requested_size": 0, "state": "inactive"}]},
]


def test_what_was_there_before_is_restored_once_and_what_led_to_it_skipped(companion, monkeypatch):
    import torch

    history = sys.modules["shardledger._companion.allocations.history"]
    earlier, later = ENTRIES[0], ENTRIES[1]
    traces = [[later], [earlier, {"action": "snapshot", "addr": 0, "size": 0, "stream": 0}, later]]
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"segments": SEGMENTS, "device_traces": traces})
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **options: None)
    assert history.start() == 4
    assert companion.calls.named("allocator_restore", "allocator_existing") == [
        ("allocator_restore", 1, 1, 2, 4),
        ("allocator_existing", 1, 4096, 1024, 1000, 7, 0, 3, 1, True),
        ("allocator_existing", 1, 5120, 512, 512, 7, 0, 3, 2, False),
        ("allocator_existing", 1, 5632, 2048, 0, 7, 0, 3, 0, False),
        ("allocator_existing", 1, 65536, 4096, 0, 7, 0, 0, 0, True),
    ]
    companion.calls.clear()
    history.read()
    event = (ACTION["alloc"], 4096, 100, 7, 0, 3, 2500)
    assert companion.calls.named("allocator_event_at") == [
        ("allocator_event_at", 0) + event, ("allocator_event_at", 1) + event]
    history.read()
    assert [call[1:3] for call in companion.calls.named("allocator_event_at")[2:]] == [
        (1, ACTION["segment_alloc"]), (1, ACTION["snapshot"]), (0, ACTION["alloc"]), (1, ACTION["alloc"])]


# ---- call stacks ----


@pytest.fixture
def sites(companion, monkeypatch):
    found = sys.modules["shardledger._companion.allocations.history_sites"]
    for name, value in (("_frames", {}), ("_sites", {}), ("_ended", 0), ("_is_said", False)):
        monkeypatch.setattr(found, name, value)
    return found


def framed(*frames):
    return {"action": "alloc", "addr": 4096, "size": 100, "stream": 0,
            "frames": [{"filename": file, "line": line, "name": name} for file, line, name in frames]}


def test_an_entrys_frames_become_a_site_that_is_told_once(companion, sites):
    history = sys.modules["shardledger._companion.allocations.history"]
    stack = (os.getcwd() + "/model.py", 7, "forward"), ("/opt/train.py", 40, "main")
    for _ in range(2):
        history.emit(1, framed(*stack), 5)
    own = (sites.OWN_FILES + "history.py", 3, "read"), *stack
    history.emit(1, framed(*own), 6)
    assert companion.calls.named("frame", "site", "allocator_site") == [
        ("frame", 1, 0, "/opt/train.py", "main", 40), ("frame", 2, 1, "model.py", "forward", 7), ("site", 1, 2, "", 0),
        ("allocator_site", 1, 1), ("allocator_site", 1, 1), ("allocator_site", 1, 1)]
    names = [call[0] for call in companion.calls]
    assert names[names.index("allocator_site") + 1] == "allocator_event_at", "it comes right before the event that it is of"


@pytest.mark.parametrize("option, steps", [("auto", [0, 1]), ("all", [0, 1, 2, 3]), ("none", []), ("1:3", [1, 2])])
def test_stacks_are_asked_for_in_the_steps_that_are_followed(companion, sites, monkeypatch, option, steps):
    import torch

    history = sys.modules["shardledger._companion.allocations.history"]
    asked = []
    monkeypatch.setenv("SHARDLEDGER_STACKS", option)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"segments": [], "device_traces": []})
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **options: asked.append(options["context"]))
    history.start()
    for _ in range(3):
        history.read()
    assert [step for step, context in enumerate(asked) if context == "alloc"] == steps


def test_the_programs_own_word_comes_right_before_its_allocation(companion):
    history = sys.modules["shardledger._companion.allocations.history"]
    for action, note in (("segment_alloc", "kv pool"), ("alloc", "kv pool"), ("alloc", ""), ("free_requested", "kv pool")):
        history.emit(0, {"action": action, "addr": 4096, "size": 100, "stream": 0, "user_metadata": note}, 5)
    told = [call[:3] for call in companion.calls if call[0] in ("allocator_note", "allocator_event_at")]
    assert told == [("allocator_event_at", 0, ACTION["segment_alloc"]), ("allocator_note", 0, "kv pool"), ("allocator_event_at", 0, ACTION["alloc"]),
                    ("allocator_event_at", 0, ACTION["alloc"]), ("allocator_event_at", 0, ACTION["free_requested"])]
