"""One job of record.py on the stand-in for a GPU, in this process: record_versions.py starts it.

    python tests/gpu/snapshots/record_without_gpu.py JOB DIR
"""

import sys
from pathlib import Path

import record
import torch
from torch import nn


class Scale(nn.Module):
    """A layer of elementwise kernels: cuBLAS is not there."""

    def __init__(self, rows):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, record.WIDTH))

    def forward(self, data):
        return data * self.weight.mean(0)


def model_of(device="cuda"):
    return nn.Sequential(*(nn.Sequential(Scale(1000 * (layer + 1)), nn.ReLU()) for layer in range(record.LAYERS))).to(device)


def a_pool(looks):
    record.record()
    looks.pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(looks.pool):
        looks.pooled = [torch.empty(size, device="cuda") for size in (3_000_000, 100)]
    looks.take("a pool")
    looks.kept = torch.empty(70_000, device="cuda")
    del looks.pooled[0]
    looks.take("a part of it freed")


def main():
    name, place = sys.argv[1], Path(sys.argv[2])
    record.model_of = model_of
    record.JOBS["a-pool"] = a_pool
    record.run(name, place)


if __name__ == "__main__":
    main()
