"""Jobs that never ran, made up by chance: unusual orders of ranges, allocations, frees and tags, for the oracle's tests.

They keep the rules that PyTorch and the companion keep: ranges nest on their thread, a block is handed out where one is free,
an FSDP unit's backward ends with its reshard or its reduce. Everything else is random.
"""

import random

from oracle import ALLOC, FREE, FREE_COMPLETED, FREE_REQUESTED, MIB, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, Allocator
from oracle_log import NUMBERS, TABLE, Event
from oracle_parts import KINDS

CATEGORY = {kind: number for number, kind in KINDS.items()}
BEGIN_NS = 10**18
MAIN, AUTOGRAD = 1, 2
FSDP, ROOT = 1, 2  # a module's flags
SIZES = (4, 512, 1000, 4096, 70000, MIB, MIB + 1, 3 * MIB, 9 * MIB, 12 * MIB, 33 * MIB)
TAGS = ("param", "sharded_param", "buffer", "gradient", "sharded_grad", "optstate", "input")


class Job:
    """A log in the making: definitions, threads {ordinal: [Event]}, tids."""

    def __init__(self, seed, expandable=False):
        self.choose, self.expandable = random.Random(seed), expandable
        self.definitions, self.threads, self.tids = [], {}, {0: 0, MAIN: 1001, AUTOGRAD: 1002}
        self.strings, self.places, self.sequences, self.depths = {"": 0}, {}, {}, {}
        self.ns, self.ranges, self.info = BEGIN_NS, 0, {"allocator_config": f"expandable_segments:{expandable}"}
        self.allocators = {0: Allocator(self), 1: Allocator(self)}
        self.free_address, self.small = {0: 1 << 40, 1: 1 << 41}, {}
        self.live, self.pending, self.modules = [], [], {}
        self.define("nvtx_domain", id=1, name=self.string("shardledger"))
        for key, value in {**self.info, "rank": "0", "world_size": "1", "allocator_backend": "native"}.items():
            self.define("info", key=self.string(key), value=self.string(value))
        for state in self.choose.choice(((), ("on",), ("on",), ("on",), ("on", "failed"))):
            self.define("source_state", source=self.string("companion"), state=self.string(state))
        for model in range(self.choose.choice((1, 1, 2))):
            self.model(f"Model{model}", FSDP if self.chance(0.6) else 0)

    def chance(self, share):
        return self.choose.random() < share

    # ---- events ----
    def event(self, kind, fields, tail=b""):
        return Event(self.ns, kind, {name: fields.get(name, 0) for name in TABLE[NUMBERS[kind]][2]}, tail)

    def define(self, kind, tail=b"", **fields):
        self.definitions.append(self.event(kind, fields, tail)._replace(ns=BEGIN_NS))

    def add(self, thread, kind, **fields):
        self.ns += self.choose.randint(1, 1000)
        self.threads.setdefault(thread, []).append(self.event(kind, fields))

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings)
            self.define("string", text.encode(), id=self.strings[text], length=len(text))
        return self.strings[text]

    def push(self, thread, name, kind="record_function", value=0):
        self.add(thread, "range_push", name=self.string(name), domain=1, category=CATEGORY[kind], value=value)
        self.depths[thread] = self.depths.get(thread, 0) + 1

    def pop(self, thread):
        self.depths[thread] -= 1
        self.add(thread, "range_pop", domain=1, depth=self.depths[thread])

    def start(self, thread, name, kind, value):
        self.ranges += 1
        self.add(thread, "range_start", id=self.ranges, name=self.string(name), domain=1, category=CATEGORY[kind], value=value)
        return self.ranges

    # ---- models ----
    def module(self, parent, fqn, name, flags, depth):
        number = len(self.modules) + 1
        self.modules[number] = (parent, fqn, name, flags)
        self.define("module", id=number, parent=parent, fqn=self.string(fqn), class_name=self.string(name), flags=flags, depth=depth)
        return number

    def model(self, name, fsdp):
        root = self.module(0, "", name, fsdp | ROOT, 0)
        for block in range(3):
            inner = self.module(root, f"blocks.{block}", "Block", fsdp, 1)
            for layer in ("attention", "mlp")[: self.choose.randint(0, 2)]:
                self.module(inner, f"blocks.{block}.{layer}", "Linear", 0, 2)

    def roots(self):
        return [number for number, (parent, *_) in self.modules.items() if not parent]

    def children(self, module):
        return [number for number, (parent, *_) in self.modules.items() if parent == module]

    def family(self, module):
        return [module] + [below for child in self.children(module) for below in self.family(child)]

    def unit(self, point, module):
        return f"FSDP::{point}" + (f" ({self.modules[module][1]})" if self.modules[module][0] else "")

    # ---- memory ----
    def allocate(self, thread):
        device, stream = int(self.chance(0.03)), 7 * self.chance(0.15)
        if (device, stream) not in self.places:
            self.places[device, stream] = len(self.places) + 1
            self.define("allocator_place", id=self.places[device, stream], device=device, stream=stream)
        place, size = self.places[device, stream], self.choose.choice((*SIZES, self.choose.randint(1, 40 * MIB)))
        need, allocator = max(512, -(-size // 512) * 512), self.allocators[device]
        small = need <= MIB
        fit = [block for block in allocator.blocks if block.state == FREE and block.place == place and block.bytes >= need
               and (self.expandable or self.small[block.segment] == small)]
        if not fit:
            whole = 2 * MIB if small else 20 * MIB if need < 10 * MIB else -(-need // (2 * MIB)) * 2 * MIB
            address = self.free_address[device]
            self.free_address[device] += whole + 2 * MIB * self.chance(0.7)
            self.trace(thread, device, SEGMENT_MAP if self.expandable else SEGMENT_ALLOC, address, whole, place)
            fit = [block for block in allocator.blocks if block.address <= address < block.end()]
            self.small.setdefault(fit[0].segment, small)
        block = min(fit, key=lambda block: (block.bytes, block.address))
        self.trace(thread, device, ALLOC, block.address, size, place)
        self.live.append((device, block.address, size, place))

    def trace(self, thread, device, action, address, size, place):
        fields = {"address": address, "bytes": size, "place": place, "action": action, "sequence": self.sequences.get(device, 0)}
        self.sequences[device] = fields["sequence"] + 1
        self.add(thread, "allocator", **fields)
        self.allocators[device].event(fields)

    def release(self, thread, allocation):
        device, *what = allocation
        self.live.remove(allocation)
        self.trace(thread, device, FREE_REQUESTED, *what)
        if self.chance(0.1):
            self.pending.append(allocation)  # another stream uses it
        else:
            self.complete(thread, allocation)

    def complete(self, thread, allocation):
        device, *what = allocation
        self.trace(thread, device, FREE_COMPLETED, *what)
        blocks = self.allocators[device].blocks
        for block in [block for block in blocks if block.state == FREE] if self.chance(0.02) else ():
            low = -(-block.address // (2 * MIB)) * 2 * MIB
            if self.expandable and low + 2 * MIB <= block.end():
                return self.trace(thread, device, SEGMENT_UNMAP, low, 2 * MIB, block.place)
            if not self.expandable and sum(other.segment == block.segment for other in blocks) == 1:
                return self.trace(thread, device, SEGMENT_FREE, block.address, block.bytes, block.place)

    def work(self, thread, most=4):
        """Something happens to memory."""
        for _ in range(self.choose.randint(0, most)):
            what = self.choose.random()
            if what < 0.5:
                self.allocate(thread)
            elif what < 0.85 and self.live:
                self.release(thread, self.choose.choice(self.live[-25:] if self.chance(0.8) else self.live))
            elif what < 0.9 and self.pending:
                self.complete(thread, self.pending.pop(self.choose.randrange(len(self.pending))))
            elif what < 0.95 and self.live:
                device, address, *_ = self.choose.choice(self.live)
                self.add(thread, "tag", address=address, device=device, category=self.string(self.choose.choice(TAGS)),
                         module=self.choose.choice((0, *self.modules)))
            elif what < 0.97:
                self.within(thread, "a range of the user's")
        while len(self.live) > 60:
            self.release(thread, self.choose.choice(self.live))

    def within(self, thread, name, kind="record_function", value=0):
        self.push(thread, name, kind, value)
        self.work(thread)
        self.pop(thread)

    # ---- training ----
    def forward(self, thread, module, kind):
        _, fqn, name, flags = self.modules[module]
        self.push(thread, fqn or name, kind, module)
        self.work(thread)
        if flags & FSDP:
            if flags & ROOT:
                self.within(thread, "FSDP::inputs_to_device")
            self.push(thread, self.unit("pre_forward", module))
            for point in ("all_gather", "all_gather_copy_out"):
                if self.chance(0.8):
                    self.within(thread, self.unit(point, module))
            self.work(thread, 1)
            self.pop(thread)
        for child in self.children(module):
            if self.chance(0.9):
                self.forward(thread, child, kind)
            self.work(thread)
        if flags & FSDP:
            self.within(thread, self.unit("post_forward", module))
        self.work(thread)
        self.pop(thread)

    def backward(self, root):
        thread, family, opened = AUTOGRAD if self.chance(0.85) else MAIN, self.family(root), []
        self.push(MAIN, "backward", "backward")
        self.work(MAIN, 1)
        fsdp = self.modules[root][3] & FSDP
        for module in [root] * bool(fsdp) + [m for m in reversed(family) if m != root or not fsdp]:
            if self.chance(0.1):
                continue
            if self.modules[module][3] & FSDP:
                self.push(thread, self.unit("pre_backward", module))
                if self.chance(0.7):
                    self.within(thread, self.unit("all_gather_copy_out", module))
                self.pop(thread)
            else:
                opened.append(self.start(thread, self.modules[module][1], "backward", module))
            self.work(thread)
            if self.chance(0.25):
                self.forward(thread, module, "recompute")
            if self.modules[module][3] & FSDP and module != root:
                self.post_backward(thread, module)
            elif len(opened) > 1 and self.chance(0.7):
                self.add(thread, "range_end", id=opened.pop(self.choose.randrange(len(opened))))
            self.work(thread)
        if fsdp:
            self.push(thread, "FSDP::root_post_backward_callback")
            self.post_backward(thread, root)
            self.work(thread, 1)
            self.pop(thread)
        for started in opened:
            self.add(thread, "range_end", id=started)
        self.work(thread)
        self.pop(MAIN)

    def post_backward(self, thread, module):
        self.within(thread, self.unit("post_backward_accumulate", module))
        self.within(thread, self.unit("post_backward_reshard", module))
        if self.chance(0.8):  # else gradients are accumulated without sync
            self.within(thread, self.unit("post_backward_reduce", module))

    def between(self):
        """An evaluation, a checkpoint, a step of another optimizer; ranges around these, and such that go on into a step."""
        self.work(MAIN)
        while self.depths.get(MAIN) and self.chance(0.5):
            self.pop(MAIN)
        if self.chance(0.3):
            self.push(MAIN, "epoch")
        if self.chance(0.3):
            self.push(MAIN, self.choose.choice(("validate", "epoch")))
            for _ in range(self.choose.randint(0, 3)):
                self.forward(MAIN, self.choose.choice(self.roots()), "eval")
            self.work(MAIN)
            self.pop(MAIN)
        if self.chance(0.3):
            self.within(MAIN, "save", "checkpoint")
        if self.chance(0.4):
            self.forward(MAIN, self.choose.choice(self.roots()), self.choose.choice(("eval", "forward")))
        if self.chance(0.1):
            self.within(MAIN, "other", "optimizer_step", 2)

    def train(self, steps, numbers=None):
        """numbers: those that the steps are recorded with. Without steps it does between what else it would have done there."""
        self.work(MAIN, 12)
        for _ in range(0 if steps else 3):
            self.between()
        for step in range(steps):
            self.between()
            started = self.start(MAIN, f"step {step}", "step", numbers[step] if numbers else step)
            for _ in range(self.choose.choice((1, 1, 2))):
                root = self.choose.choice(self.roots())
                self.within(MAIN, "Optimizer.zero_grad#AdamW.zero_grad")
                if self.chance(0.2):
                    self.forward(MAIN, self.choose.choice(self.roots()), "eval")
                self.forward(MAIN, root, "forward")
                self.work(MAIN)
                if self.chance(0.9):
                    self.backward(root)
                if self.chance(0.85):
                    self.push(MAIN, "Optimizer.step#AdamW.step")
                    self.within(MAIN, "AdamW", "optimizer_step", 1)
                    self.pop(MAIN)
            self.work(MAIN)
            if step < steps - 1 or self.chance(0.8):  # else it is killed in its last step
                self.add(MAIN, "range_end", id=started)
        self.work(MAIN)
        return self
