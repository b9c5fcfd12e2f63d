"""The ledger's figures once more, by another way: a slow and simple replay of a log, as an oracle for tests. See docs/truth.md.

Written from docs/log-format.md, docs/categories.md, docs/schema.md and PyTorch's own sources, not from storage/, with
which it shares no code: dicts, lists, and sums that are taken anew whenever they are asked for.
"""

import bisect
import collections
import functools
import operator
import re

ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP = range(1, 8)
MIB = 1 << 20
GROW = (ALLOC, SEGMENT_ALLOC, SEGMENT_MAP)  # only after these a sum may be higher than before
FREE, ALLOCATED, PENDING = range(3)  # of a block
ADDRESS, BYTES, REQUESTED = map(operator.attrgetter, ("address", "bytes", "requested"))
STEP = 1  # a range's category
HOLE_NS = 10_000_000


class Block:
    __slots__ = ("address", "bytes", "place", "segment", "state", "requested", "allocation")

    def __init__(self, address, bytes, place, segment):
        self.address, self.bytes, self.place, self.segment = address, bytes, place, segment
        self.state, self.requested, self.allocation = FREE, 0, None

    def end(self):
        return self.address + self.bytes


class Allocator:
    """PyTorch's caching allocator of one device: a list of blocks in address order. What contradicts it is passed over."""

    def __init__(self, log):
        config = log.info.get("allocator_config", "")
        self.expandable = "expandable_segments:True" in config
        limit = re.search(r"max_split_size_mb:(\d+)", config)
        self.max_split = int(limit.group(1)) * MIB if limit else float("inf")
        divisions = re.search(r"roundup_power2_divisions:(\d+)", config)  # the list of one for each size is not known here
        self.divisions = int(divisions.group(1)) if divisions else 1
        self.blocks = []

    def at(self, address):
        """The blocks that begin there."""
        first = bisect.bisect_left(self.blocks, address, key=ADDRESS)
        return self.blocks[first : bisect.bisect_right(self.blocks, address, first, key=ADDRESS)]

    def find(self, address, *states):
        return next((b for b in self.at(address) if b.state in states), None)

    def sums(self):
        """requested, allocated, active, reserved bytes"""
        active = [b for b in self.blocks if b.state]  # PyTorch counts what was requested as long as its block is active
        allocated = [b for b in active if b.state == ALLOCATED]
        return sum(map(REQUESTED, active)), sum(map(BYTES, allocated)), sum(map(BYTES, active)), sum(map(BYTES, self.blocks))

    def largest_free(self):
        return max((b.bytes for b in self.blocks if b.state == FREE), default=0)

    def inactive_split(self):
        """Free blocks beside others in one segment; of expandable ones, in one mapped range without a hole."""
        parts, of, last = collections.Counter(), {}, None
        for b in sorted(self.blocks, key=lambda b: (str(b.segment), b.address)):
            of[b] = of[last] if last and last.segment == b.segment and last.end() == b.address else b
            parts[of[b]] += 1
            last = b
        return sum(b.bytes for b in self.blocks if b.state == FREE and parts[of[b]] > 1)

    def add(self, block):
        bisect.insort(self.blocks, block, key=ADDRESS)

    def merge(self, block):
        """A free block takes in the free ones beside it."""
        start, end = block.address, block.end()
        beside = [b for b in self.blocks if not b.state and (b.address == end or b.address + b.bytes == start) and b.segment == block.segment]
        for other in sorted(beside, key=lambda b: b.address, reverse=True):
            low, high = (block, other) if other.address > block.address else (other, block)
            low.bytes += high.bytes
            self.blocks.remove(high)
            block = low

    def restore(self, existing):
        """Takes over what the allocator held before recording began; returns its blocks."""
        segment = 0
        for fields in existing:
            segment += fields["starts_segment"]
            mapped = ("mapped", fields["place"]) if self.expandable else ("restored", segment)
            block = Block(fields["address"], fields["bytes"], fields["place"], mapped)
            block.state = fields["state"]
            block.requested = fields["requested_bytes"] if block.state else 0
            self.add(block)
        return list(self.blocks)

    def block_bytes(self, size):
        """What a request takes: whole 512 bytes, or with divisions the next of so many parts between two powers of 2."""
        step = 512
        if self.divisions > 1 and size > 512 * self.divisions:
            step = 2 ** (size.bit_length() - 1) // self.divisions
        return max(512, -(-size // step) * step)

    def event(self, fields, allocation=None):
        """Replays one trace entry. Returns the block that it handed out or freed."""
        action, address, size, place = (fields[key] for key in ("action", "address", "bytes", "place"))
        block = None
        if action == ALLOC:
            block = self.find(address, FREE)
            rounded = self.block_bytes(size)
            if not block or block.bytes < rounded:
                return None
            rest = block.bytes - rounded
            if rest >= 512 if rounded <= MIB or self.expandable else rounded < self.max_split and rest > MIB:
                self.add(Block(address + rounded, rest, block.place, block.segment))
                block.bytes = rounded
            block.state, block.requested, block.allocation = ALLOCATED, size, allocation
        elif action in (FREE_REQUESTED, FREE_COMPLETED):
            block = self.find(address, ALLOCATED if action == FREE_REQUESTED else PENDING)
            if block and action == FREE_REQUESTED:
                block.state = PENDING
            elif block:
                block.state = FREE
                self.merge(block)
        elif action in (SEGMENT_ALLOC, SEGMENT_MAP):
            if self.at(address):
                return None  # the end of the one before was lost
            # Ranges of one reservation are one segment, whose end nobody tells: neighbours of one place belong together.
            mapped = action == SEGMENT_MAP
            block = Block(address, size, place, ("mapped", place) if mapped else ("whole", address, fields["sequence"]))
            self.add(block)
            if mapped:
                self.merge(block)
        elif action in (SEGMENT_FREE, SEGMENT_UNMAP):
            block = next((b for b in self.blocks if b.state == FREE and b.address <= address and address + size <= b.end()), None)
            if block:
                self.blocks.remove(block)
                for start, end in ((block.address, address), (address + size, block.end())):
                    if start < end:
                        self.add(Block(start, end - start, block.place, block.segment))
        return block


@functools.lru_cache(maxsize=2)
def in_order(log):
    """[every event] as (ordinal, event), in the order in which it counts: within a thread by position, between threads by
    time; a thread whose next event is one of the allocator's waits for those of lower sequence numbers. Where these do not
    come until the others are 10 ms ahead, they are lost."""
    device_of = {key: place["device"] for key, place in log.places.items()}
    due = {}  # the next sequence number, by device
    for events in log.threads.values():
        for event in events:
            if event.type == "allocator":
                device, sequence = device_of[event.fields["place"]], event.fields["sequence"]
                due[device] = min(due.get(device, sequence), sequence)
    heads = {ordinal: [0, log.threads[ordinal][0].ns] for ordinal in log.threads}  # position, and the time, which does not go back
    found = []
    while heads:
        early, ready = [], []
        for ordinal, (position, ns) in heads.items():
            event = log.threads[ordinal][position]
            ahead = event.type == "allocator" and event.fields["sequence"] > due[device_of[event.fields["place"]]]
            (early if ahead else ready).append((ns, ordinal))
        if early and (not ready or min(ready)[0] > min(early)[0] + HOLE_NS):
            fields = [log.threads[ordinal][heads[ordinal][0]].fields for _, ordinal in sorted(early)]
            device = device_of[fields[0]["place"]]
            due[device] = min(f["sequence"] for f in fields if device_of[f["place"]] == device)
            continue
        ns, ordinal = min(ready)
        position = heads[ordinal][0]
        event = log.threads[ordinal][position]
        if event.type == "allocator":
            device = device_of[event.fields["place"]]
            due[device] = max(due[device], event.fields["sequence"] + 1)
        if position + 1 == len(log.threads[ordinal]):
            del heads[ordinal]
        else:
            heads[ordinal] = [position + 1, max(ns, log.threads[ordinal][position + 1].ns)]
        found.append((ordinal, event))
    return found


@functools.lru_cache(maxsize=2)
def collectives(log):
    """{(step or None, operation): [calls, bytes]} of what NCCL's NVTX ranges tell."""
    size_at = {(s["domain"], s["schema"]): s["offset"] for s in log.schemas if log.strings[s["name"]] == "Message size [bytes]"}
    found, step, named, highest = collections.defaultdict(lambda: [0, 0]), None, {}, -1
    for ordinal, event in in_order(log):
        fields = event.fields
        if event.type == "range_start" and log.domains[fields["domain"]] == "shardledger" and fields["category"] == STEP:
            step, started = fields["value"] if highest < fields["value"] < 2**53 else highest + 1, fields["id"]
            highest = step
        elif event.type == "range_end" and step is not None and fields["id"] == started:
            step = None
        elif event.type == "range_push":
            named[ordinal] = log.strings[fields["name"]]
        elif event.type == "lost":
            named.pop(ordinal, None)
        elif event.type == "range_payload" and (fields["domain"], fields["schema"]) in size_at and ordinal in named:
            at = size_at[fields["domain"], fields["schema"]]
            count = found[step, named[ordinal].removeprefix("nccl")]
            count[0] += 1
            count[1] += int.from_bytes(event.tail[at : at + 8], "little")
    return dict(found)
