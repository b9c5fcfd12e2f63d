"""Small jobs for the memory trackers: each makes a model, its optimizer and its inputs, and says how one iteration goes.

A job of kind "module" is one that MemTracker follows, of kind "fsdp" one for FSDPMemTracker. Sizes are multiples of what
PyTorch's allocator hands out, but for `uneven`, whose blocks are larger than what was asked for.
"""

import dataclasses
import functools
from collections.abc import Callable

import torch
from torch import nn
from torch.distributed._composable import checkpoint as checkpoint_in_place
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint


@dataclasses.dataclass
class Made:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    inputs: torch.Tensor
    forward: Callable  # (): the loss


class Block(nn.Module):
    def __init__(self, width, dtype):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(width, 2 * width, dtype=dtype), nn.ReLU(), nn.Linear(2 * width, width, dtype=dtype)
        self.register_buffer("scale", torch.ones(width, dtype=dtype))

    def forward(self, x):
        return x + self.down(self.act(self.up(x))) * self.scale


class Stack(nn.Module):
    def __init__(self, blocks, width, dtype=torch.float32, again=False):
        super().__init__()
        self.blocks, self.again = nn.ModuleList(Block(width, dtype) for _ in range(blocks)), again

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return x


def _made(model, inputs, called=None, **options):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **options)
    return Made(model, optimizer, inputs, lambda: (called or model)(inputs).sum())


def plain(device, dtype=torch.bfloat16, width=512, again=False, rows=64):
    with torch.device(device):
        model = Stack(3, width, dtype, again)
    return _made(model, torch.randn(rows, width, dtype=dtype, device=device), foreach=True)


def sharded(device, wrap=lambda block: block, called=None, width=512, **options):
    with torch.device(device):
        model = Stack(3, width)
    for place, block in enumerate(model.blocks):
        model.blocks[place] = wrap(block)
        fully_shard(model.blocks[place], **options)
    fully_shard(model, **options)
    return _made(model, torch.randn(64, width, device=device), called(model) if called else None, foreach=False)


_MIXED = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)

JOBS = {  # name: (kind, function of the device)
    "plain": ("module", plain),
    "uneven": ("module", functools.partial(plain, dtype=torch.float32, width=777, rows=3001)),
    "recompute": ("module", functools.partial(plain, dtype=torch.float16, width=1024, again=True, rows=2048)),
    "fsdp": ("fsdp", functools.partial(sharded, reshard_after_forward=True)),
    "fsdp-keeps-gathered": ("fsdp", functools.partial(sharded, reshard_after_forward=False)),
    "fsdp-mixed": ("fsdp", functools.partial(sharded, mp_policy=_MIXED)),
    "fsdp-recompute-wrapper": ("fsdp", functools.partial(sharded, wrap=checkpoint_wrapper)),
    "fsdp-recompute-in-place": ("fsdp", functools.partial(sharded, wrap=checkpoint_in_place)),
    "fsdp-unit-alone": ("fsdp", functools.partial(sharded, called=lambda model: model.blocks[0])),
}
