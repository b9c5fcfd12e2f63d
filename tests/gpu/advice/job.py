"""Jobs that run out of memory in the ways of docs/advice.md, and the options that advice comes down to.

    python job.py CASE [--limit BYTES] [options]      one of CASES; prints a JSON line of PyTorch's own figures a step

A case draws its limit where it says, with so much room as it says, or of so many bytes as --limit says. Without a GPU it runs
on the CPU, without a limit and figures.
"""

import argparse
import json
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
MIB = 1 << 20
QUANTITIES = ("requested", "allocated", "active", "reserved")


@dataclass
class Case:
    """at: where the limit is drawn: start, model (when it is made), step N, optimizer (before its first step), block (in the forward of the last block),
    evaluation (the one that ends the job). room: so many bytes more than are alive then; None: as --limit says, or none."""

    at: str = "start"
    room: int = None
    parameters_room: float = 0  # and so many times what the parameters take
    width: int = 512
    layers: int = 4
    vocabulary: int = 4096
    batch: int = 4
    lengths: tuple = (256,)
    steps: int = 5
    world: int = 0  # FSDP2, rank 0 of so many that only pretend to be there
    micro_batches: int = 1  # of which the last one reduces gradients
    leaks: bool = False
    evaluations: int = 0
    attention: bool = True


MIXED = (512, 256, 384, 320)
CASES = {
    # Limits that run.py finds out beforehand, from runs without one.
    "fragmented": Case(width=768, vocabulary=6144, lengths=MIXED, steps=8),
    "temporaries": Case("step 2", width=1024, layers=8, vocabulary=512, batch=1, lengths=(64,), steps=5),
    "both": Case(width=1024, layers=6, vocabulary=512, batch=2, lengths=(128, 64, 96, 80), steps=8),
    "grows": Case(width=768, vocabulary=6144, lengths=(384, 256, 512, 320), steps=6),
    "sharded": Case(width=768, vocabulary=6144, lengths=(384, 256, 512, 320), steps=6, world=4),
    "long-loss": Case(width=512, layers=2, vocabulary=32000, batch=1, lengths=(4096,), steps=3, attention=False),
    "leak": Case("step 3", batch=8, steps=24, leaks=True),
    "accumulate": Case("step 2", width=1024, vocabulary=512, batch=1, lengths=(64,), steps=4, world=2, micro_batches=4),
    # Drawn where it hurts.
    "first-adamw-temporaries": Case("optimizer", room=8 * MIB, parameters_room=2.5, layers=6, batch=1, lengths=(64,), steps=4),
    "first-adamw-states": Case("optimizer", room=0, parameters_room=0.5, width=1024, batch=1, lengths=(64,), steps=3),
    "forward": Case("block", room=0, layers=6, batch=8, lengths=(512,), steps=3, attention=False),
    "evaluation": Case("evaluation", room=64 * MIB, steps=4, evaluations=12),
    "setup": Case("start", room=200 * MIB, steps=0),
    # Where nothing is enough: the gradient of the last layer alone is more than the room, or the root unit's all-gather.
    "gradient": Case("model", room=0, parameters_room=0.1, width=1024, layers=2, vocabulary=32000, batch=1, lengths=(64,), steps=2),
    "gathered": Case("model", room=0, parameters_room=0.4, width=1024, layers=2, vocabulary=32000, batch=1, lengths=(64,), steps=2,
                     world=4),
}


class Block(nn.Module):
    def __init__(self, width, attention):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), attention
        if attention:
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.before = None  # called within its forward

    def forward(self, x):
        if self.attention:
            q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
            x = x + self.out(((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2).flatten(2))
        hidden = functional.gelu(self.up(self.norm(x)))
        if self.before:
            self.before()
        return x + self.down(hidden)


class Model(nn.Module):
    def __init__(self, case, recompute):
        super().__init__()
        self.embedding = nn.Embedding(case.vocabulary, case.width)
        self.blocks = nn.ModuleList(Block(case.width, case.attention) for _ in range(case.layers))
        self.head, self.recompute = nn.Linear(case.width, case.vocabulary), recompute

    def forward(self, tokens, with_head=True):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute and self.training else block(x)
        return self.head(x) if with_head else x


class OnHost:
    """AdamW whose states are the host's."""

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


class InBackward:
    """AdamW that steps for each parameter as soon as it has its gradient, which then goes."""

    def __init__(self, parameters):
        for p in parameters:
            p.register_post_accumulate_grad_hook(self.stepper(torch.optim.AdamW([p])))

    @staticmethod
    def stepper(optimizer):
        def step(p):
            optimizer.step()
            optimizer.zero_grad()

        return step

    def step(self):
        pass

    zero_grad = step


OPTIMIZERS = {
    "adamw": torch.optim.AdamW,
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "adamw-forloop": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
    "host": OnHost,
    "in-backward": InBackward,
}


class Job:
    def __init__(self, case, options):
        self.case, self.options, self.limited, self.kept = case, options, False, []

    def say(self, **row):
        print(json.dumps(row), flush=True)

    def figures(self, **row):
        """PyTorch's own, since they were said last."""
        if CUDA:
            stats = torch.cuda.memory_stats()
            row |= {f"{quantity}_peak": stats[f"{quantity}_bytes.all.peak"] for quantity in QUANTITIES}
            row["retries"] = stats["num_alloc_retries"]
            torch.cuda.reset_peak_memory_stats()
        self.say(**row)

    def limit(self, where, parameter_bytes=0):
        """Draws it, once, where the case says."""
        if where != self.case.at or self.limited or not CUDA:
            return
        self.limited = True
        if self.case.room is None and not self.options.limit:
            return
        total = torch.cuda.get_device_properties(0).total_memory
        bytes = self.options.limit
        if where != "start":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        if not bytes:
            bytes = torch.cuda.memory_reserved() + self.case.room + int(self.case.parameters_room * parameter_bytes)
        torch.cuda.set_per_process_memory_fraction(bytes / total)
        self.say(limit=int(bytes / total * total), drawn=where)

    def loss_of(self, model, tokens):
        chunks = self.options.loss_chunks
        if chunks == 1:
            return functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
        hidden, labels = model(tokens, with_head=False).flatten(0, 1), tokens.flatten()

        def part(h, t):
            return functional.cross_entropy(model.head(h).float(), t, reduction="sum")

        pairs = zip(hidden.chunk(chunks), labels.chunk(chunks))
        return sum(checkpoint(part, h, t, use_reentrant=False) for h, t in pairs) / len(labels)

    def model(self):
        case = self.case
        model = Model(case, self.options.recompute).to(DEVICE)
        if case.world:
            from torch.distributed.fsdp import fully_shard

            for block in model.blocks:
                fully_shard(block)
            fully_shard(model)
        if case.at == "block":
            model.blocks[-1].before = lambda: self.limit("block")
        return model

    def tokens(self, step):
        length = self.case.lengths[step % len(self.case.lengths)] // (1 if CUDA else 32)
        return torch.randint(self.case.vocabulary, (max(1, self.case.batch // self.options.part), length), device=DEVICE)

    def step(self, number, model, optimizer, parameters):
        self.limit(f"step {number}")
        if CUDA:
            torch.cuda.reset_peak_memory_stats()
        if self.options.optimizer == "in-backward":  # which steps before the optimizer's turn
            self.limit("optimizer")
        optimizer.zero_grad()
        for micro in range(self.case.micro_batches):
            if self.case.micro_batches > 1:
                model.set_requires_gradient_sync(self.options.sync or micro == self.case.micro_batches - 1)
            loss = self.loss_of(model, self.tokens(number)) / self.case.micro_batches
            loss.backward()
        self.limit("optimizer", sum(p.nbytes for p in parameters))
        optimizer.step()
        if self.case.leaks and not self.options.keep_nothing:
            self.kept.append(model(self.tokens(number), with_head=False).detach())
        del loss
        self.figures(rank=0, step=number)

    def evaluate(self, model):
        """Keeps what the model returns, as an evaluation that gathers its logits does."""
        model.eval()
        self.limit("evaluation")
        if CUDA:
            torch.cuda.reset_peak_memory_stats()
        with torch.no_grad():
            device = "cpu" if self.options.keep_nothing else DEVICE
            kept = [model(self.tokens(0)).to(device) for _ in range(self.case.evaluations)]
        self.figures(rank=0, evaluation=sum(logits.nbytes for logits in kept))

    def run(self):
        self.limit("start")
        if not self.case.steps:
            models = [Model(self.case, False).to(DEVICE) for _ in range(16 if CUDA else 2)]
            return self.figures(rank=0, models=len(models))
        torch.manual_seed(0)
        model = self.model()
        parameters = list(model.parameters())
        self.limit("model", sum(p.nbytes for p in parameters))
        optimizer = OPTIMIZERS[self.options.optimizer](parameters)
        for number in range(self.case.steps):
            self.step(number, model, optimizer, parameters)
        if self.case.evaluations:
            self.evaluate(model)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--loss-chunks", type=int, default=1)
    parser.add_argument("--part", type=int, default=1, help="of the batch: one so manyth")
    parser.add_argument("--keep-nothing", action="store_true", help="of a step, and of an evaluation on the GPU")
    parser.add_argument("--sync", action="store_true", help="reduces gradients for each micro-batch")
    options = parser.parse_args()
    case = CASES[options.case]
    if case.world:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=case.world)
    job = Job(case, options)
    try:
        job.run()
        job.say(end="survived")
    except torch.cuda.OutOfMemoryError as error:
        job.say(end="out of memory", error=str(error)[:120])
    if case.world:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
