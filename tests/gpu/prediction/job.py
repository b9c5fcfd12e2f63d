"""A small training job whose memory depends on how it is configured; `record.py` runs it in many ways.

    python job.py [--optimizer WHICH] [--in-backward] [--world N [--rank R] [--keep | --reshard M] [--mixed]] [--limit BYTES]
                  [--steps N] …

Each step prints PyTorch's own figures as a JSON line. Sequences have several lengths, so that the cache is fragmented. With
--world it is one of so many ranks that only pretend to be there (PyTorch's fake process group), sharded by FSDP2. Without a
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


class OnHost:
    """AdamW on copies in the host's memory."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.copies = [p.detach().cpu().requires_grad_() for p in self.parameters]
        self.optimizer = torch.optim.AdamW(self.copies)

    def step(self):
        for p, copy in zip(self.parameters, self.copies):
            copy.grad = p.grad.cpu()
        self.optimizer.step()
        with torch.no_grad():
            for p, copy in zip(self.parameters, self.copies):
                p.copy_(copy)

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None


OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "adamw-forloop": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
    "host": OnHost,
}


class InBackward:
    """One optimizer a parameter, which steps in backward, when the parameter has its gradient; that is freed at once."""

    def __init__(self, parameters, optimizer):
        for p in parameters:
            p.register_post_accumulate_grad_hook(self.stepper(optimizer([p])))

    @staticmethod
    def stepper(optimizer):
        def step(_):
            optimizer.step()
            optimizer.zero_grad()

        return step

    def step(self):
        pass

    zero_grad = step


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

    def forward(self, tokens, with_head=True):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x) if with_head else x


def recompute(model, which):
    """Of these blocks: "all", or their numbers."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    for number, block in enumerate(model.blocks):
        if which == "all" or str(number) in which.split(","):
            model.blocks[number] = checkpoint_wrapper(block)


def make(options):
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    if options.recompute:
        recompute(model, options.recompute)
    if options.world:
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

        how = {}
        if options.replicas > 1:
            shape = (options.replicas, options.world // options.replicas)
            how["mesh"] = torch.distributed.init_device_mesh(DEVICE, shape, mesh_dim_names=("replicate", "shard"))
        if options.mixed:
            how["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if options.offload:
            how["offload_policy"] = CPUOffloadPolicy()
        for block in model.blocks:
            fully_shard(block, reshard_after_forward=options.reshard or not options.keep, **how)
        fully_shard(model, **how)
    return model


def recomputed_loss(model, tokens, pieces):
    """The last layer and the loss in pieces, each made again in backward."""
    from torch.utils.checkpoint import checkpoint

    def part(h, t):
        return functional.cross_entropy(model.head(h).float(), t, reduction="sum")

    hidden, targets = model(tokens, with_head=False).flatten(0, 1), tokens.flatten()
    pairs = zip(hidden.chunk(pieces), targets.chunk(pieces))
    return sum(checkpoint(part, h, t, use_reentrant=False) for h, t in pairs) / len(targets)


def loss_of(model, tokens, chunks):
    logits = model(tokens).flatten(0, 1)
    targets = tokens.flatten()
    if chunks == 1:
        return functional.cross_entropy(logits.float(), targets)
    losses = [functional.cross_entropy(part.float(), target, reduction="sum")
              for part, target in zip(logits.chunk(chunks), targets.chunk(chunks))]
    return sum(losses) / len(targets)


def micro_step(model, options, step, is_last):
    """One forward and backward."""
    length = int(LENGTHS[step % len(LENGTHS)] * options.sequence)
    tokens = torch.randint(VOCABULARY, (int(BATCH * options.batch), length), device=DEVICE)
    syncs = is_last or not options.no_sync
    if options.world:
        model.set_requires_gradient_sync(syncs)
    if options.loss_chunks > 1:
        recomputed_loss(model, tokens, options.loss_chunks).backward()
    else:
        loss_of(model, tokens, options.chunks).backward()


def move_states(optimizer, device):
    for state in optimizer.state.values():
        for key, value in state.items():
            if value.dim():
                state[key] = value.to(device)


def train(model, optimizer, options):
    for step in range(options.steps):
        if CUDA:
            torch.cuda.reset_peak_memory_stats()
        optimizer.zero_grad()
        for micro in range(options.micro):
            micro_step(model, options, step, micro + 1 == options.micro)
        if options.swap:
            move_states(optimizer, DEVICE)
        optimizer.step()
        if options.swap:
            move_states(optimizer, "cpu")
        row = {}
        if CUDA:
            stats = torch.cuda.memory_stats()
            row = {f"{quantity}_peak": stats[f"{quantity}_bytes.all.peak"] for quantity in QUANTITIES}
            row["retries"] = stats["num_alloc_retries"]
        print(json.dumps({"rank": options.rank, "step": step, **row}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--in-backward", action="store_true", help="the optimizer steps for each parameter in backward")
    parser.add_argument("--world", type=int, default=0)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--replicas", type=int, default=1, help="HSDP: groups of ranks that each have all parameters")
    parser.add_argument("--keep", action="store_true", help="reshard_after_forward=False")
    parser.add_argument("--reshard", type=int, default=0, help="reshard_after_forward=so many")
    parser.add_argument("--mixed", action="store_true", help="FSDP2's mixed precision: bfloat16, reduced in float32")
    parser.add_argument("--offload", action="store_true", help="FSDP2's CPUOffloadPolicy")
    parser.add_argument("--swap", action="store_true", help="the optimizer's state is in the host's memory but for its steps")
    parser.add_argument("--recompute", default="", help="these blocks: all, or numbers such as 0,2")
    parser.add_argument("--micro", type=int, default=1, help="forwards and backwards a step")
    parser.add_argument("--no-sync", action="store_true", help="gradients are reduced in the last of them only")
    parser.add_argument("--chunks", type=int, default=1, help="parts that the loss is computed in")
    parser.add_argument("--loss-chunks", type=int, default=1, help="pieces of the last layer and the loss, each made again in backward")
    parser.add_argument("--batch", type=float, default=1, help="times as large")
    parser.add_argument("--sequence", type=float, default=1, help="times as long")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    if options.limit and CUDA:
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(options.limit / total)
        print(json.dumps({"limit": int(options.limit / total * total)}), flush=True)
    if options.world:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", store=FakeStore(), rank=options.rank, world_size=options.world)
    model, optimizer = make(options), OPTIMIZERS[options.optimizer]
    try:
        parameters = list(model.parameters())
        train(model, InBackward(parameters, optimizer) if options.in_backward else optimizer(parameters), options)
    except torch.cuda.OutOfMemoryError as error:
        print(json.dumps({"out_of_memory": str(error)[:120]}), flush=True)
    if options.world:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
