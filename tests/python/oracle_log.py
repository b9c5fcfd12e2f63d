"""A second reader of the event log, and a writer, for the oracle: written from docs/log-format.md, they share no code with storage/.

The reader trusts what it reads (checksums are the other reader's business) but for records that were not committed, or are cut off.
"""

import collections
import ctypes
import functools
import itertools
import pathlib
import re
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = struct.Struct("<8I4Q")  # of a segment
FRAME = struct.Struct("<6IQ")
COMMIT = struct.Struct("<BBHI")
SEGMENT_BYTES = 256 << 10
DROPPED = 0xFFFFFFFF  # ordinal of nobody's thread, which stands for what keep-last dropped

Event = collections.namedtuple("Event", "ns type fields tail")
LOST = "lost"  # type of an event that stands for a stretch of a thread that is missing


def event_table():
    """{number: (name, struct, field names, whether a tail follows)} of plugin/format/events.def."""
    letters = {"uint8_t": "B", "uint16_t": "H", "uint32_t": "I", "uint64_t": "Q"}
    table = {}
    for entry in re.split(r"^EVENT_BEGIN\(", (ROOT / "plugin/format/events.def").read_text(), flags=re.M)[1:]:
        number, name = re.match(r"(\d+), (\w+)", entry).groups()
        fields = re.findall(r"FIELD\((\w+), (\w+)", entry)
        layout = struct.Struct("<" + "".join(letters[kind] for kind, _ in fields))
        table[int(number)] = (name, layout, tuple(field for _, field in fields), "TAIL(" in entry)
    return table


TABLE = event_table()
NUMBERS = {entry[0]: number for number, entry in TABLE.items()}


@functools.lru_cache(maxsize=None)
def library(name):
    return ctypes.CDLL(name)


def decompress(data, size):
    zstd = library("libzstd.so.1")
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    buffer = ctypes.create_string_buffer(size)
    done = zstd.ZSTD_decompress(buffer, ctypes.c_size_t(size), data, ctypes.c_size_t(len(data)))
    return buffer.raw[:done] if done <= size else b""


def checksum(data, seed=0):
    xxhash = library("libxxhash.so.0")
    xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    return xxhash.XXH3_64bits_withSeed(data, ctypes.c_size_t(len(data)), ctypes.c_uint64(seed))


def segments(directory):
    """{number: (header, records, frame's encoding)}; a sealed segment goes before its raw twin."""
    found = {}
    for path in sorted(directory.glob("*.slogz")):
        data, at = path.read_bytes(), 0
        while at + FRAME.size + HEADER.size <= len(data):
            _, _, number, raw, compressed, encoding, _ = FRAME.unpack_from(data, at)
            header = HEADER.unpack_from(data, at + FRAME.size)
            at += FRAME.size + HEADER.size + compressed
            if at <= len(data):
                found[number] = header, decompress(data[at - compressed : at], raw), encoding
    for path in sorted(directory.glob("*.slog")):
        data = path.read_bytes()
        if len(data) >= HEADER.size and HEADER.unpack_from(data)[11]:
            key = "dropped" if path.name == "dropped.slog" else int(path.stem, 16)
            found.setdefault(key, (HEADER.unpack_from(data), data[HEADER.size :], 0))
    return found


def records(header, data, differences):
    """The events of one segment, with their times."""
    base, at, delta, sequence = header[8], 0, 0, 0
    while at + COMMIT.size <= len(data):
        number, words, _, change = COMMIT.unpack_from(data, at)
        end = at + 8 * words
        if number not in TABLE or words == 0 or end > len(data):
            return
        delta = (delta + change) & 0xFFFFFFFF if differences else change
        name, layout, names, has_tail = TABLE[number]
        values = dict(zip(names, layout.unpack_from(data, at + 8)))
        if differences and name == "allocator":
            sequence = values["sequence"] = (sequence + values["sequence"]) & 0xFFFFFFFF
        if name == "time_base":
            base = values["realtime_ns"]
        start = at + 8 + layout.size
        yield Event(base + delta, name, values, data[start : start + values["length"]] if has_tail else b"")
        at = end


class Log:
    """What one process wrote: definitions as dicts, and the events of each thread in their order."""

    def __init__(self, directory):
        chains, goes_on = collections.defaultdict(list), {}
        for header, data, encoding in segments(directory).values():
            chains[header[4]].append((header[5], header, data, encoding))
        self.strings, self.info, self.places, self.modules = {0: ""}, {}, {}, {}
        self.domains, self.restores, self.schemas = {0: ""}, [], []
        self.threads = collections.defaultdict(list)  # ordinal: [Event]
        self.tids, self.dropped = {}, []
        self.definitions = definitions = []
        for chain, parts in chains.items():
            due = 0
            for sequence, header, data, encoding in sorted(parts, key=lambda part: part[0]):
                ordinal, tid = header[4], header[6]
                ordinal, tid = goes_on.get(chain, (ordinal, tid))
                if sequence > due and chain not in (0, DROPPED):
                    self.lost(ordinal)
                due = sequence + 1
                for event in records(header, data, encoding == 1):
                    if chain == 0:
                        definitions.append(event)
                    elif chain == DROPPED:
                        self.dropped.append(event)
                    elif event.type == "thread":
                        ordinal, tid = event.fields["ordinal"], event.fields["tid"]
                        goes_on[chain] = ordinal, tid
                    else:
                        self.tids[ordinal] = tid
                        self.threads[ordinal].append(event)
        self.define(definitions)

    def lost(self, ordinal):
        """A segment of the thread's is missing here."""
        events = self.threads[ordinal]
        events.append(Event(events[-1].ns if events else 0, LOST, {}, b""))

    def define(self, events):
        for event in events:
            if event.type == "string":
                self.strings[event.fields["id"]] = event.tail.decode()
        for event in events:
            fields = event.fields
            if event.type == "info":
                self.info[self.strings[fields["key"]]] = self.strings[fields["value"]]
            elif event.type == "allocator_place":
                self.places[fields["id"]] = fields
            elif event.type == "module":
                self.modules[fields["id"]] = {**fields, "fqn": self.strings[fields["fqn"]],
                                              "class_name": self.strings[fields["class_name"]]}
            elif event.type == "nvtx_domain":
                self.domains[fields["id"]] = self.strings[fields["name"]]
            elif event.type == "nvtx_schema_entry":
                self.schemas.append(fields)
            elif event.type == "allocator_restore":
                self.restores.append((fields, []))
            elif event.type == "allocator_existing":
                self.restores[-1][1].append(fields)


def record(event, base):
    """The bytes of one event, base being the time that its own counts from."""
    number = NUMBERS[event.type]
    _, layout, names, _ = TABLE[number]
    body = layout.pack(*(event.fields[name] for name in names)) + event.tail
    body += bytes(-len(body) % 8)
    words, delta = len(body) // 8 + 1, event.ns - base
    check = checksum(body, number | words << 8 | delta << 16) & 0xFFFF
    return COMMIT.pack(number, words, check, delta) + body


def write(directory, definitions, threads, tids):
    """A log directory of these events, {ordinal: [Event]}; 0 to 2^32 ns between an event and its time base. Where one is LOST,
    a segment is missing."""
    directory.mkdir(parents=True)
    number = 0
    for ordinal, events in [(0, definitions), *threads.items()]:
        events = collections.deque(event for event in events if event.type != "time_base")
        for sequence in itertools.count():
            if not events:
                break
            if events[0].type == LOST:
                events.popleft()
                continue  # without a segment of this sequence number
            base = now = events[0].ns
            data, size = [], HEADER.size
            while events and events[0].type != LOST:
                found = [events[0]]
                if not 0 <= events[0].ns - now < 1 << 32:
                    found.insert(0, Event(events[0].ns, "time_base", {"realtime_ns": events[0].ns}, b""))
                    now = events[0].ns
                encoded = b"".join(record(event, now) for event in found)
                if size + len(encoded) > SEGMENT_BYTES - COMMIT.size:
                    break
                data.append(encoded)
                size += len(encoded)
                events.popleft()
            head = HEADER.pack(0x474F4C53, 1, number, SEGMENT_BYTES, ordinal, sequence, tids.get(ordinal, 0), 0, base, 1, 0, 0)
            head = head[:-8] + checksum(head[:-8]).to_bytes(8, "little")
            (directory / f"{number:08x}.slog").write_bytes((head + b"".join(data)).ljust(SEGMENT_BYTES, b"\0"))
            number += 1
