"""One job under one tracker: what the tracker says at every point, beside what PyTorch's allocator counts there."""

import dataclasses
import gc

import torch

POINTS = ("entered", "forward", "backward", "step", "cleared")


@dataclasses.dataclass
class Seen:
    current: dict  # point → {word: bytes}, of the last iteration
    allocated: dict  # point → bytes that the allocator counts since the job began
    owners: dict  # point → {word: (bytes of the blocks, of their requests rounded up)}, of the tensors that model and optimizer hold
    peak: dict  # {word: bytes}
    allocated_peak: int  # max_memory_allocated since the tracker was entered, without what was there before the job
    modules: dict  # (fqn, state, call) → {word: bytes}, of the last iteration
    hooks: dict  # (fqn, state, call) → bytes that the allocator counts when a hook of ours is called there
    members: dict  # fqn → [bytes of parameters, buffers, inputs, outputs], which MemTracker has
    kind: str  # the class that answered


def words(snapshot, device):
    """{word: bytes} of a tracker's snapshot: its keys are members of an enum, and "Total"."""
    return {getattr(key, "value", key): size for key, size in snapshot.get(device, {}).items()}


def module_states(tracker, device):
    return {(stats.mod_fqn, state.value, call): words(snapshot, device)
            for stats in tracker.memory_tracking.values()
            for state, snapshots in stats.snapshots.items() for call, snapshot in enumerate(snapshots)}


def members(tracker):
    return {stats.mod_fqn: [stats.parameter_mem, stats.buffer_mem, stats.input_mem, stats.output_mem]
            for stats in tracker.memory_tracking.values() if hasattr(stats, "parameter_mem")}


class _Hooks:
    """Allocated bytes where modules' forwards begin and end: first and last of their hooks, between which nothing is allocated."""

    def __init__(self, model, kind, allocated):
        self.seen, self.allocated = {}, allocated
        before, after = ("Before Pre-Forward", "After Post-Forward") if kind == "fsdp" else ("Pre-Forward", "Post-Forward")
        self.names = {id(module): type(model).__name__ + ("." + name if name else "") for name, module in model.named_modules()}
        self.handles = []
        for module in model.modules():
            self.handles.append(module.register_forward_pre_hook(self._noting(before), prepend=True))
            self.handles.append(module.register_forward_hook(self._noting(after)))

    def _noting(self, state):
        def hook(module, *_):
            # What runs again in backward is of other states, whose calls are counted by themselves.
            if torch._C._current_graph_task_id() == -1:
                name = self.names[id(module)]
                call = sum(1 for fqn, known, _ in self.seen if (fqn, known) == (name, state))
                self.seen[name, state, call] = self.allocated()

        return hook

    def remove(self):
        for handle in self.handles:
            handle.remove()


def workspaces(device):
    """Has cuBLAS made what it keeps, on both threads, before anything is counted."""
    linear = torch.nn.Linear(768, 768, device=device)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        linear.to(dtype)(torch.randn(1, 768, device=device, dtype=dtype)).sum().backward()


OWNERS = {
    "module": ("Parameter", "Buffer", "Gradient", "Optstate"),
    "fsdp": ("Sharded Param", "Buffer", "Sharded Grad", "OptState"),
}


def owners(made, kind, blocks):
    """{word: (bytes, requested)} by asking the objects themselves. blocks: the allocator's, {address: (bytes, requested)}."""
    parameters = [parameter for group in made.optimizer.param_groups for parameter in group["params"]]
    held = (parameters, list(made.model.buffers()), [p.grad for p in parameters if p.grad is not None],
            [value for state in made.optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)])
    found = {}
    for word, tensors in zip(OWNERS[kind], held):
        addresses = {getattr(tensor, "_local_tensor", tensor).untyped_storage().data_ptr() for tensor in tensors}
        theirs = [blocks[address] for address in addresses if address in blocks]
        found[word] = sum(size for size, _ in theirs), sum(-(-requested // 512) * 512 for _, requested in theirs)
    return found


class Allocator:
    """PyTorch's own, on a GPU: what it counts above what was there before the job."""

    def __init__(self, device):
        self.device = device
        workspaces(device)
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.before = torch.cuda.memory_allocated(device)

    def now(self):
        return torch.cuda.memory_allocated(self.device) - self.before

    def reset_peak(self):
        torch.cuda.reset_peak_memory_stats(self.device)

    def blocks(self):
        return {block["address"]: (block["size"], block["requested_size"]) for segment in torch.cuda.memory_snapshot()
                for block in segment["blocks"] if block["state"] == "active_allocated"}

    def peak(self):
        return torch.cuda.max_memory_allocated(self.device) - self.before


def observe(make, kind, trackers, device, allocator, key=None, iterations=2):
    """trackers: (MemTracker, FSDPMemTracker), PyTorch's or ours. key: the device in their answers, where it is not the job's."""
    key = key or device
    torch.manual_seed(0)
    made = make(device)
    if kind == "fsdp":
        tracker = trackers[1](made.model, made.optimizer)
        tracker.track_inputs((made.inputs,))
    else:
        tracker = trackers[0]()
        tracker.track_external(made.model, made.optimizer, made.inputs)
    current, counted, held = {}, {}, {}

    def ask(point):
        counted[point] = allocator.now()
        held[point] = owners(made, kind, allocator.blocks())
        current[point] = words(tracker.get_tracker_snapshot("current"), key)

    allocator.reset_peak()
    with tracker:
        ask("entered")
        for _ in range(iterations - 1):
            made.forward().backward()
            made.optimizer.step()
            made.optimizer.zero_grad()
            tracker.reset_mod_stats()
        hooks = _Hooks(made.model, kind, allocator.now)
        loss = made.forward()
        ask("forward")
        loss.backward()
        del loss
        ask("backward")
        made.optimizer.step()
        ask("step")
        made.optimizer.zero_grad()
        ask("cleared")
        hooks.remove()
        highest = allocator.peak()
    answered = type(getattr(tracker, "handed_over_to", None) or tracker)
    seen = Seen(current, counted, held, words(tracker.get_tracker_snapshot("peak"), key), highest, module_states(tracker, key),
                hooks.seen, members(tracker), f"{answered.__module__}.{answered.__name__}")
    del made, tracker, hooks
    gc.collect()
    return seen
