"""A small training on one process without FSDP, with ranges by record_function and by the user."""

import ctypes
import os
import sys

import shardledger

if "CUDA_INJECTION64_PATH" in os.environ:
    ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()  # as CUDA does it

import torch
from torch import nn

ATTACHED = shardledger.attach()
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters())


@shardledger.range("decorated")
def prepare():
    shardledger.mark("ready")


prepare()
for step in range(2):
    with torch.profiler.record_function("batch é"), shardledger.range("user's"):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
print("attached" if ATTACHED else "not attached", "shardledger._companion.install" in sys.modules)
