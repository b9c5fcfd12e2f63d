"""A training job that says itself where its memory comes from, to hold the ledger's lines against.

    python job.py TRUTH        one GPU; rank 0 of two that only pretend to be there, FSDP2, one block checkpointed

Ten steps. During step 7 PyTorch's own memory history is on, with Python stacks: its allocations with their frames go to TRUTH.
During step 8 torch.profiler is on: bytes by operator. At the end a request is refused, and Python's traceback says where.
Nothing here knows of any recorder.
"""

import json
import sys
import traceback

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint

STEPS, WITH_HISTORY, WITH_PROFILER = 10, 7, 8
WIDTH, ROWS, BLOCKS = 512, 256, 4


class Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient * (1 - y * y)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        hidden = self.up(self.norm(x))
        return x + self.down(F.gelu(hidden))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, 1024)

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if number == 1 else block(x)
        return self.head(Squash.apply(x))


def train_step(model, optimizer):
    optimizer.zero_grad()
    rows = torch.randn(ROWS, WIDTH, device="cuda")
    logits = model(rows)
    loss = F.cross_entropy(logits.float(), torch.zeros(ROWS, dtype=torch.long, device="cuda"))
    loss.backward()
    optimizer.step()


def with_history(step):
    """[[bytes asked for, [[file, line, function], …] innermost first], …] of what the step allocates."""
    torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=1000000)
    try:
        step()
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
    finally:
        torch.cuda.memory._record_memory_history(None)
    return [[entry["size"], [[frame["filename"], frame["line"], frame["name"]] for frame in entry["frames"]]]
            for entry in trace if entry["action"] == "alloc"]


def with_profiler(step):
    """[[bytes of the block, [operator, …] innermost first], …] by what torch.profiler saw run around each allocation."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = profiler.profiler.kineto_results.events()
    operators = [e for e in events if e.name() != "[memory]"]
    found = []
    for memory in events:
        if memory.name() == "[memory]" and memory.nbytes() > 0 and str(memory.device_type()).endswith("CUDA"):
            around = [e for e in operators if e.start_thread_id() == memory.start_thread_id()
                      and e.start_ns() <= memory.start_ns() <= e.start_ns() + e.duration_ns()]
            around.sort(key=lambda e: (-e.start_ns(), e.duration_ns()))
            found.append([memory.nbytes(), [e.name() for e in around]])
    return found


def refused():
    try:
        return torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return [[frame.filename, frame.lineno, frame.name] for frame in traceback.extract_tb(error.__traceback__)]


def main():
    torch.cuda.set_device(0)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    model = Model().cuda()
    mesh = init_device_mesh("cuda", (2,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    truth = {}
    for number in range(STEPS):
        step = lambda: train_step(model, optimizer)  # noqa: E731
        if number == WITH_HISTORY:
            truth["history"] = with_history(step)
        elif number == WITH_PROFILER:
            truth["operators"] = with_profiler(step)
        else:
            step()
    truth["refused"] = refused()
    with open(sys.argv[1], "w") as file:
        json.dump(truth, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
