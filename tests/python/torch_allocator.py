"""PyTorch's caching allocator, played: segments, blocks, splits, merges, expandable segments, streams that hold a block back.

Written after c10/cuda/CUDACachingAllocator.cpp, and sharing no code with ShardLedger's. It keeps the history and the statistics that
PyTorch keeps, and gives the dictionary that torch.cuda.memory._snapshot() would give.
"""

SMALL, LARGE, MIN_LARGE, PAGE = 1 << 20, 20 << 20, 10 << 20, 2 << 20


class Block:
    def __init__(self, address, size, segment):
        self.address, self.size, self.segment = address, size, segment
        self.state, self.requested, self.frames = "inactive", 0, []


class Segment:
    def __init__(self, address, stream, small, expandable):
        self.address, self.stream, self.small, self.expandable = address, stream, small, expandable
        self.blocks = []  # mapped, in address order; of an expandable one there may be holes between them


class Allocator:
    def __init__(self, device=0, expandable=False, clock=1_700_000_000_000_000):
        self.device, self.expandable, self.clock = device, expandable, clock
        self.segments, self.trace, self.looks, self.live = [], [], [], {}
        self.next_address = 0x7F0000000000 + (device << 40)

    # ---- what a program does ----

    def malloc(self, requested, stream=0, frames=(), metadata=""):
        size = max(512, (requested + 511) // 512 * 512)
        small = size <= SMALL
        block = self._find(size, stream, small) or self._grow(size, stream, small)
        rest = block.size - size
        if rest >= 512 if small or self.expandable else rest > SMALL:
            blocks = block.segment.blocks
            blocks.insert(blocks.index(block) + 1, Block(block.address + size, rest, block.segment))
            block.size = size
        block.state, block.requested, block.frames = "active_allocated", requested, list(frames)
        self.live[block.address] = block
        self._note("alloc", block.address, requested, stream, frames=list(frames), user_metadata=metadata)
        return block.address

    def free(self, address, used_elsewhere=False):
        block = self.live.pop(address)
        block.state = "active_pending_free"
        self._note("free_requested", address, block.requested, block.segment.stream)
        if not used_elsewhere:
            self.complete(block)
        return block

    def complete(self, block):
        self._note("free_completed", block.address, block.requested, block.segment.stream)
        block.state, block.frames = "inactive", []
        blocks = block.segment.blocks
        at = blocks.index(block)
        if at + 1 < len(blocks) and self._joins(block, blocks[at + 1]):
            block.size += blocks.pop(at + 1).size
        if at and self._joins(blocks[at - 1], block):
            blocks[at - 1].size += blocks.pop(at).size

    def empty_cache(self):
        for segment in list(self.segments):
            for block in list(segment.blocks):
                if block.state != "inactive":
                    continue
                if segment.expandable:
                    self._unmap(segment, block)
                elif len(segment.blocks) == 1:
                    self._note("segment_free", block.address, block.size, segment.stream)
                    self.segments.remove(segment)

    def refuse(self, requested, free):
        self._note("oom", free, requested, 0, key="device_free")

    def look(self):
        """The statistics, and an entry in the history that says when they were read."""
        now = self.sums()
        self._note("snapshot", 0, now["active"], 0)
        self.looks.append(now)

    # ---- what PyTorch tells of it ----

    def sums(self):
        blocks = [block for segment in self.segments for block in segment.blocks]
        active = [block for block in blocks if block.state != "inactive"]
        return {"reserved": sum(block.size for block in blocks), "active": sum(block.size for block in active),
                "requested": sum(block.requested for block in active),
                "allocated": sum(block.size for block in active if block.state == "active_allocated")}

    def told_segments(self):
        told = []
        for segment in self.segments:
            run = []
            for block in [*segment.blocks, None]:
                if run and (block is None or run[-1].address + run[-1].size != block.address):
                    told.append(self._told(segment, run))
                    run = []
                run.append(block)
        return told

    def _told(self, segment, blocks):
        held = [block for block in blocks if block.state != "inactive"]
        return {"device": self.device, "address": blocks[0].address, "total_size": sum(block.size for block in blocks),
                "allocated_size": sum(block.size for block in held if block.state == "active_allocated"),
                "active_size": sum(block.size for block in held), "requested_size": sum(block.requested for block in held),
                "stream": segment.stream, "segment_type": "small" if segment.small else "large",
                "segment_pool_id": (0, 0), "is_expandable": segment.expandable, "frames": [],
                "blocks": [{"address": block.address, "size": block.size, "requested_size": block.requested,
                            "state": block.state, "frames": block.frames} for block in blocks]}

    # ---- inside ----

    def _note(self, action, address, size, stream, key="addr", frames=None, **more):
        self.clock += 7
        entry = {"action": action, key: address, "size": size, "stream": stream, "time_us": self.clock,
                 "compile_context": "N/A", "user_metadata": more.get("user_metadata", "")}
        if frames:
            entry["frames"] = frames
        self.trace.append(entry)

    def _joins(self, left, right):
        return left.state == right.state == "inactive" and left.address + left.size == right.address

    def _find(self, size, stream, small):
        fits = [block for segment in self.segments if segment.stream == stream and segment.small == small
                for block in segment.blocks if block.state == "inactive" and block.size >= size]
        return min(fits, key=lambda block: (block.size, block.address), default=None)

    def _grow(self, size, stream, small):
        if self.expandable:
            return self._map(size, stream, small)
        bytes = PAGE if small else LARGE if size < MIN_LARGE else (size + PAGE - 1) // PAGE * PAGE
        segment = Segment(self.next_address, stream, small, False)
        self.next_address += bytes + PAGE
        segment.blocks.append(Block(segment.address, bytes, segment))
        self.segments.append(segment)
        self._note("segment_alloc", segment.address, bytes, stream)
        return segment.blocks[0]

    def _map(self, size, stream, small):
        page = PAGE if small else LARGE
        segment = next((s for s in self.segments if s.stream == stream and s.small == small), None)
        if segment is None:
            segment = Segment(self.next_address, stream, small, True)
            self.next_address += 1 << 36
            self.segments.append(segment)
        last = segment.blocks[-1] if segment.blocks else None
        end = last.address + last.size if last else segment.address
        there = last.size if last and last.state == "inactive" else 0
        bytes = (size - there + page - 1) // page * page
        self._note("segment_map", end, bytes, stream)
        if there:
            last.size += bytes
            return last
        segment.blocks.append(Block(end, bytes, segment))
        return segment.blocks[-1]

    def _unmap(self, segment, block):
        page = PAGE if segment.small else LARGE
        first = segment.address + (block.address - segment.address + page - 1) // page * page
        end = segment.address + (block.address + block.size - segment.address) // page * page
        if end <= first:
            return
        self._note("segment_unmap", first, end - first, segment.stream)
        at, until = segment.blocks.index(block), block.address + block.size
        parts = [Block(block.address, first - block.address, segment), Block(end, until - end, segment)]
        segment.blocks[at:at + 1] = [part for part in parts if part.size]


def snapshot(allocators, settings="", annotations=(), last=None):
    """What torch.cuda.memory._snapshot() gives of these devices; last: so many entries of each history are left."""
    traces = [[] for _ in range(max(allocator.device for allocator in allocators) + 1)]
    for allocator in allocators:
        traces[allocator.device] = allocator.trace if last is None else allocator.trace[len(allocator.trace) - last:]
    return {"segments": [told for allocator in allocators for told in allocator.told_segments()], "device_traces": traces,
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": settings, "max_split_size": 2**64 - 1,
                                   "garbage_collection_threshold": 0.0,
                                   "expandable_segments": any(a.expandable for a in allocators),
                                   "roundup_power2_divisions": {"1": 0}},
            "external_annotations": list(annotations)}
