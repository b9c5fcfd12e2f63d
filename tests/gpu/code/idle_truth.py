"""Which memory nobody uses at a step's peak, as PyTorch itself tells it: its allocator's history and a TorchDispatchMode.

    with Truth() as truth: step(); step()      two steps that are like those before
    truth.idle()                               of the first one's peak

Nothing here knows of any recorder. An operator uses the storages of its tensors, from its begin to its end; one that only makes
a view or memory without a value uses nothing. What is alive at the peak and made within the two steps is

    late    last used before the peak, and freed within the two steps
    early   used for the first time after the peak, or never, and freed within them
"""

import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WITHOUT_VALUE = ("empty", "new_empty", "resize_", "set_", "record_stream", "_version")


def only_looks(func):
    name = func._schema.name.partition("::")[2]
    return func.is_view or name.startswith(WITHOUT_VALUE) or name in ("detach", "_unsafe_view", "_reshape_alias", "lift_fresh")


class Uses(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []  # (begin, end in ns, operator, {address: bytes}, {address of what it made})

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        inputs = storages((args, kwargs or {}))
        begin = time.time_ns()
        result = func(*args, **(kwargs or {}))
        end = time.time_ns()
        if not only_looks(func):
            self.seen.append((begin, end, str(func), {**inputs, **storages(result)}))
        return result


def storages(tree):
    found = {}
    for leaf in tree_leaves(tree):
        if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
            found[leaf.untyped_storage().data_ptr()] = leaf.untyped_storage().nbytes()
    return found


class Truth:
    def __init__(self):
        self.uses = Uses()
        self.marks = []

    def __enter__(self):
        torch.cuda.synchronize()
        self.before_bytes = torch.cuda.memory_allocated()
        torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=1000000)
        self.uses.__enter__()
        return self

    def step_ended(self):
        self.marks.append(time.time_ns())

    def __exit__(self, *exception):
        self.uses.__exit__(*exception)
        self.trace = torch.cuda.memory._snapshot()["device_traces"][0]
        torch.cuda.memory._record_memory_history(None)

    def lives(self):
        """[[address, asked for, made at, freed at or None, (file, line, name)]] in microseconds' order, and the first step's peak."""
        alive, lives, now, peak = {}, [], 0, (0, 0)
        until = self.marks[0]
        for number, entry in enumerate(self.trace):
            at = entry["time_us"] * 1000
            if entry["action"] == "alloc":
                life = [entry["addr"], entry["size"], (at, number), None, users_line(entry.get("frames", []))]
                alive[entry["addr"]] = life
                lives.append(life)
                now += rounded(entry["size"])
                if at <= until and now > peak[0]:
                    peak = now, (at, number)
            elif entry["action"] == "free_requested":
                life = alive.pop(entry["addr"], None)
                now -= rounded(life[1]) if life else rounded(entry["size"])
                if life:
                    life[3] = (at, number)
        return lives, peak[1]

    def idle(self):
        """[(kind, bytes asked for, line, last operator)] of the first step's peak."""
        lives, peak = self.lives()
        # An operator that runs at the peak uses what it has until its end. Times of the trace are cut to microseconds.
        found = []
        for address, size, made, freed, line in lives:
            if made > peak or freed is None or freed <= peak or size < 512:
                continue
            used = [(begin, end, name) for begin, end, name, addresses in self.uses.seen
                    if address in addresses and end >= made[0] and begin <= freed[0] + 999]
            before = [name for begin, end, name in used if begin <= peak[0] + 999]
            during_or_after = [name for begin, end, name in used if end >= peak[0]]
            if before and not during_or_after:
                found.append(("late", size, line, before[-1]))
            elif not before:
                found.append(("early", size, line, during_or_after[0] if during_or_after else None))
        return found


def rounded(size):
    return max(512, (size + 511) // 512 * 512)


def users_line(frames):
    for frame in frames:
        file = frame["filename"]
        if not any(part in file for part in ("/site-packages/", "/dist-packages/", "/lib/python3", "idle_truth.py", "/python/shardledger/")):
            return [file.rpartition("/")[2], frame["line"]]
    return None
