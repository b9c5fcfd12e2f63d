"""The fallback's translation of PyTorch's memory history."""

import sys

from shardledger.kinds import ACTION, ACTION_OTHER

ENTRIES = [
    {"action": "segment_alloc", "addr": 4096, "size": 2097152, "stream": 0, "time_us": 1},
    {"action": "alloc", "addr": 4096, "size": 100, "stream": 7, "time_us": 2, "segment_pool_id": (0, 3)},
    {"action": "oom", "device_free": 12345, "size": 1 << 40, "stream": 0, "time_us": 3},
    {"action": "something new", "addr": 1, "size": 2, "stream": 3},
]


def test_entries_become_allocator_events_in_order(companion):
    history = sys.modules["shardledger.history"]
    for entry in ENTRIES:
        history.emit(1, entry)
    assert companion.calls == [
        ("allocator_event", 1, ACTION["segment_alloc"], 4096, 2097152, 0, 0, 0),
        ("allocator_event", 1, ACTION["alloc"], 4096, 100, 7, 0, 3),
        ("allocator_event", 1, ACTION["oom"], 12345, 1 << 40, 0, 0, 0),
        ("allocator_event", 1, ACTION_OTHER, 1, 2, 3, 0, 0),
    ]


def test_what_was_read_is_cleared_and_not_read_again(companion, monkeypatch):
    import torch

    history = sys.modules["shardledger.history"]
    recorded = []
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": [[], ENTRIES[:2]]})
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **options: recorded.append(options))
    history.read()
    assert [call[:3] for call in companion.calls] == [
        ("allocator_event", 1, ACTION["segment_alloc"]), ("allocator_event", 1, ACTION["alloc"])]
    assert recorded[0]["clear_history"] is True and recorded[0]["context"] is None
