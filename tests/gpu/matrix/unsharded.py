"""Jobs without FSDP2: FSDP1, DDP, tensor parallel alone, one GPU; and what they do with the allocator."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .registry import Skip, job


def fsdp1(run, **options):
    import fsdp2_train
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FullyShardedDataParallel(
        run.transformer(torch.float32),
        auto_wrap_policy=ModuleWrapPolicy({fsdp2_train.Block}),
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        device_id=torch.device("cuda", torch.cuda.current_device()) if run.cuda else torch.device("cpu"),
        **options,
    )


@job
def fsdp1_orig_params(run):
    """FSDP1 with use_orig_params, mixed precision"""
    run.train(fsdp1(run, use_orig_params=True), tracker=None)


@job
def fsdp1_flat(run):
    """FSDP1 with flat parameters, mixed precision"""
    run.train(fsdp1(run, use_orig_params=False), tracker=None)


@job
def ddp(run):
    """DistributedDataParallel"""
    run.train(DistributedDataParallel(run.transformer()), tracker="module")


@job
def ddp_bucket_view(run):
    """DistributedDataParallel(gradient_as_bucket_view=True), buckets of 1 MiB"""
    model = DistributedDataParallel(run.transformer(), gradient_as_bucket_view=True, bucket_cap_mb=1)
    run.train(model, tracker="module")


@job
def plain(run):
    """no wrapper: each process trains its own model"""
    run.train(run.transformer(), tracker="module")


@job
def plain_autocast(run):
    """no wrapper, fp32 parameters under autocast"""
    model = run.transformer(torch.float32)
    optimizer = run.adamw(model)

    def step(ended):
        optimizer.zero_grad()
        with torch.autocast(run.device, torch.bfloat16):
            loss = run.loss(model)
        loss.backward()
        optimizer.step()
        ended()

    run.train(model, optimizer, step, tracker="module")


@job
def plain_recompute(run):
    """no wrapper, activation checkpointing"""
    run.train(run.transformer(recompute=True), tracker="module")


@job
def tp(run):
    """tensor parallel linears alone"""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh, model = run.mesh(), run.transformer()
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    # AdamW's foreach kernels take no mixture of DTensors and plain tensors.
    run.train(model, run.adamw(model, foreach=False), tracker=None)


class Perceptron(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        return x + self.layers(x)


@job
def cuda_graph(run):
    """forward and backward of a module as CUDA graphs, and a graph captured within a step: private pools"""
    if not run.cuda:
        raise Skip("CUDA graphs need a GPU")
    width = run.width
    model = nn.Sequential(Perceptron(width), Perceptron(width)).to(run.device)
    sample = torch.randn(64, width, device=run.device, requires_grad=True)
    model[0] = torch.cuda.make_graphed_callables(model[0], (sample,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
    still = torch.randn(4096, width, device=run.device)
    graphs = []

    def step(ended):
        optimizer.zero_grad()
        loss = model(torch.randn(64, width, device=run.device, requires_grad=True)).square().mean()
        loss.backward()
        if not graphs:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side), torch.no_grad():
                model[1](still)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
                output = model[1](still)
            graphs.append((graph, output))
        graphs[0][0].replay()
        optimizer.step()
        ended()

    run.train(model, optimizer, step, tracker=None)
    torch.cuda.synchronize()


@job
def mempool(run):
    """forward's allocations in a MemPool of the user's"""
    if not run.cuda:
        raise Skip("a MemPool needs a GPU")
    if torch.cuda.get_allocator_backend() != "native":
        raise Skip("MemPools need the native allocator")
    model = run.transformer()
    optimizer = run.adamw(model)
    pool = torch.cuda.MemPool()

    def step(ended):
        optimizer.zero_grad()
        with torch.cuda.use_mem_pool(pool):
            loss = run.loss(model)
        loss.backward()
        optimizer.step()
        ended()

    run.train(model, optimizer, step, tracker=None)


@job
def pinned(run):
    """inputs by way of pinned host memory, activations offloaded to it"""
    if not run.cuda:
        raise Skip("pinned memory needs a GPU")
    model = run.transformer()
    optimizer = run.adamw(model)

    def step(ended):
        optimizer.zero_grad()
        host = torch.randint(0, run.vocabulary, (run.batch, run.sequence)).pin_memory()
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            loss = run.loss(model, host.to(run.device, non_blocking=True))
        loss.backward()
        optimizer.step()
        ended()

    run.train(model, optimizer, step, tracker=None)
