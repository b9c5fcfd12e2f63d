"""A small training job whose memory depends on how it is configured; `record.py` runs it in many ways.

    python job.py [--optimizer WHICH] [--world N [--keep]] [--limit BYTES] [--steps N]

Each step prints PyTorch's own figures as a JSON line. Sequences have several lengths, so that the cache is fragmented. With
--world it is rank 0 of so many ranks that only pretend to be there (PyTorch's fake process group), sharded by FSDP2. Without a
GPU it runs on the CPU and prints no figures.
"""

import argparse
import json

import torch
from torch import nn
from torch.nn import functional

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
WIDTH, LAYERS, VOCABULARY, BATCH = (768, 4, 6144, 4) if CUDA else (16, 2, 64, 2)
LENGTHS = (384, 256, 512, 320) if CUDA else (8, 4)
QUANTITIES = ("requested", "allocated", "active", "reserved")
OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "adamw-forloop": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2)).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make(world, keep):
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    if world:
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block, reshard_after_forward=not keep)
        fully_shard(model)
    return model


def train(model, optimizer, steps):
    for step in range(steps):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTHS[step % len(LENGTHS)]), device=DEVICE)
        if CUDA:
            torch.cuda.reset_peak_memory_stats()
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        optimizer.step()
        row = {}
        if CUDA:
            stats = torch.cuda.memory_stats()
            row = {f"{quantity}_peak": stats[f"{quantity}_bytes.all.peak"] for quantity in QUANTITIES}
            row["retries"] = stats["num_alloc_retries"]
        print(json.dumps({"rank": 0, "step": step, **row}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--world", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="reshard_after_forward=False")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    if options.limit and CUDA:
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(options.limit / total)
        print(json.dumps({"limit": int(options.limit / total * total)}), flush=True)
    if options.world:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=options.world)
    model = make(options.world, options.keep)
    try:
        train(model, OPTIMIZERS[options.optimizer](model.parameters()), options.steps)
    except torch.cuda.OutOfMemoryError as error:
        print(json.dumps({"out_of_memory": str(error)[:120]}), flush=True)
    if options.world:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
