"""A job that runs out of memory where it is told to: FSDP2 training as in fsdp2_train.py, with a limit drawn at that point.

    torchrun --nproc-per-node 2 oom_job.py --where forward|backward|optimizer
    torchrun --nproc-per-node 2 oom_job.py --leak
    torchrun --nproc-per-node 2 oom_job.py --limit 1.7 [--loss-chunks 8]

In the middle of step 2's forward, as its backward begins, or before the first optimizer step, the cache is emptied and
torch.cuda.set_per_process_memory_fraction forbids any more, so that it needs little memory and fails alike everywhere:
the logits, a copy of their gradient and the first optimizer state are too large for what is left in segments.
--leak keeps each step's activations of the blocks and limits the process to what four such steps need.
It ends by torch.OutOfMemoryError, exit status 1; nothing here knows of any profiler.

--limit draws the limit before the first step, in GiB, as a smaller GPU would. Below the 1.73 GiB of a step with optimizer
state that is too little, most of all for the loss and its gradient; with the loss in chunks it is enough for all steps, and
the job ends in order.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from fsdp2_train import Transformer
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

STEP = 2  # in which forward and backward fail
LAST = 3  # of a job that has enough


def limit(reserved=None):
    """No more than so many bytes, or than what live memory keeps reserved now."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (reserved or torch.cuda.memory_reserved()) / total))


def loss_of(logits, tokens, chunks):
    """Cross entropy in fp32. In chunks, each makes its fp32 copies for itself, and again in backward."""
    logits, tokens = logits.view(-1, logits.shape[-1]), tokens.view(-1)
    if chunks == 1:
        return F.cross_entropy(logits.float(), tokens)

    def part(logits, tokens):
        return F.cross_entropy(logits.float(), tokens, reduction="sum")

    parts = zip(logits.chunk(chunks), tokens.chunk(chunks))
    return sum(checkpoint(part, *of_both, use_reentrant=False) for of_both in parts) / len(tokens)


def parse():
    p = argparse.ArgumentParser()
    how = p.add_mutually_exclusive_group(required=True)
    how.add_argument("--where", choices=("forward", "backward", "optimizer"))
    how.add_argument("--leak", action="store_true")
    how.add_argument("--limit", type=float, metavar="GIB")
    p.add_argument("--loss-chunks", type=int, default=1, help="parts of the batch's tokens that the loss is computed in, one after the other")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--width", type=int, default=1024)
    p.add_argument("--vocabulary", type=int, default=16000)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--sequence", type=int, default=1024)
    return p.parse_args()


def main():
    a = parse()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    torch.manual_seed(1234)
    with torch.device("cuda"):
        model = Transformer(a.vocabulary, a.width, a.layers, recompute=False)
    model = model.to(torch.bfloat16)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    middle, kept, number = model.blocks[a.layers // 2], [], 0

    if a.where == "forward":
        middle.register_forward_pre_hook(lambda *_: limit() if number == STEP else None)
    if a.leak:
        for block in model.blocks:
            block.register_forward_hook(lambda module, args, output: kept.append(output.detach()))

    if a.limit:
        limit(a.limit * 2**30)
    while not a.limit or number <= LAST:
        before = sum(tensor.nbytes for tensor in kept)
        optimizer.zero_grad()
        tokens = torch.randint(0, a.vocabulary, (a.batch, a.sequence), device="cuda")
        logits = model(tokens)
        if a.where == "backward" and number == STEP:
            logits.register_hook(lambda grad: (limit(), torch.empty_like(grad, dtype=torch.float64)) and None)
        loss_of(logits, tokens, a.loss_chunks).backward()
        del logits
        if a.where == "optimizer":
            limit()
        optimizer.step()
        if a.leak and number == 1:
            # What a step reserves at its highest, and what four further steps leave behind.
            left = sum(tensor.nbytes for tensor in kept) - before
            limit(torch.cuda.max_memory_reserved() + 4 * left)
        number += 1
        if number > 100:
            raise SystemExit("it did not run out of memory")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
