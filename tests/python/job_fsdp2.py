"""A small FSDP2 training on the CPU: three steps, an evaluation after the first. Prints a digest of all parameters.

--recompute wraps the blocks in activation checkpointing. attach() comes before torch, as an early caller would do it;
without the plugin it does nothing.
"""

import hashlib
import os
import sys

import shardledger

ATTACHED = shardledger.attach()
assert "torch" not in sys.modules, "importing or attaching the companion must not import torch"

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # torch < 2.6
    from torch.distributed._composable.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 32)
        self.down = nn.Linear(32, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self, recompute):
        super().__init__()
        wrap = checkpoint_wrapper if recompute else (lambda module: module)
        self.embedding = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(wrap(Block()) for _ in range(2))
        self.register_buffer("scale", torch.ones(8))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = self.embedding(x) * self.scale
        for block in self.blocks:
            x = block(x)
        return self.head(x)


rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method="file://" + os.environ["RENDEZVOUS"], rank=rank, world_size=world)
torch.manual_seed(1)
model = Model("--recompute" in sys.argv)
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(3):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(torch.randn(3, 4)), torch.zeros(3, 2))
    loss.backward()
    optimizer.step()
    if step == 0:
        model.eval()
        with torch.no_grad():
            model(torch.randn(1, 4))
        model.train()
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter._local_tensor.detach().numpy().tobytes())
print("attached" if ATTACHED else "not attached", digest.hexdigest())
dist.destroy_process_group()
