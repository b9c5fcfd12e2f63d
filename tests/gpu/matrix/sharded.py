"""Jobs of FSDP2."""

import functools
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from .registry import Skip, job


@job
def bf16(run):
    """bf16 parameters, a unit a block"""
    run.train(run.shard(run.transformer()))


@job
def mixed(run):
    """fp32 parameters, bf16 compute, fp32 reduction"""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    run.train(run.shard(run.transformer(torch.float32), mp_policy=policy))


@job
def mixed_bf16_reduce(run):
    """fp32 parameters, bf16 compute and reduction"""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    run.train(run.shard(run.transformer(torch.float32), mp_policy=policy))


@job
def keep_unsharded(run):
    """reshard_after_forward=False"""
    run.train(run.shard(run.transformer(), reshard_after_forward=False))


@job
def reshard_int(run):
    """reshard_after_forward=2"""
    run.train(run.shard(run.transformer(), reshard_after_forward=2))


@job
def recompute_wrapper(run):
    """activation checkpointing: checkpoint_wrapper around each block"""
    run.train(run.shard(run.transformer(recompute=True)))


@job
def recompute_composable(run):
    """activation checkpointing: torch.distributed._composable.checkpoint"""
    from torch.distributed._composable import checkpoint as composable_checkpoint

    model = run.transformer()
    for block in model.blocks:
        composable_checkpoint(block)
    run.train(run.shard(model))


@job
def recompute_function(run):
    """activation checkpointing: torch.utils.checkpoint called in forward"""
    model = run.transformer()
    for block in model.blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    run.train(run.shard(model))


@job
def recompute_nested(run):
    """activation checkpointing of pairs of blocks, and of each block within"""
    model = run.transformer(recompute=True)
    pairs = [nn.Sequential(*model.blocks[i : i + 2]) for i in range(0, run.layers, 2)]
    model.blocks = nn.ModuleList(checkpoint_wrapper(pair) for pair in pairs)
    run.train(run.shard(model))


@job
def nested(run):
    """units within units: two linears of each block, each block, the whole"""
    model, mesh = run.transformer(), run.mesh()
    for block in model.blocks:
        fully_shard(block.up, mesh=mesh)
        fully_shard(block.down, mesh=mesh)
    run.train(run.shard(model, mesh=mesh))


@job
def root_only(run):
    """one unit: the whole model"""
    run.train(fully_shard(run.transformer(), mesh=run.mesh()))


@job
def grouped(run):
    """fully_shard([a, b]): two blocks share a unit"""
    model, mesh = run.transformer(), run.mesh()
    for i in range(0, run.layers, 2):
        fully_shard([model.blocks[i], model.blocks[i + 1]], mesh=mesh)
    run.train(fully_shard(model, mesh=mesh))


@job
def offload(run):
    """CPU offload of parameters, gradients and optimizer"""
    run.train(run.shard(run.transformer(), offload_policy=CPUOffloadPolicy(pin_memory=run.cuda)), tracker=None)


def accumulating_step(run, model, optimizer, sync, micro_batches=2):
    def step(ended):
        optimizer.zero_grad()
        for i in range(micro_batches):
            if not sync:
                model.set_requires_gradient_sync(i == micro_batches - 1)
            loss = run.loss(model)
            loss.backward()
        optimizer.step()
        ended()

    return step


@job
def accumulate(run):
    """two micro-batches a step"""
    model = run.shard(run.transformer())
    optimizer = run.adamw(model)
    step = functools.partial(accumulating_step, run, model, optimizer, True)
    run.train(model, optimizer, step(), tracked_step=step(micro_batches=1))


@job
def accumulate_no_sync(run):
    """two micro-batches a step, gradients reduced in the last only"""
    model = run.shard(run.transformer())
    optimizer = run.adamw(model)
    run.train(model, optimizer, accumulating_step(run, model, optimizer, False), tracker=None)


@job
def tied(run):
    """the embedding's weight is the head's too"""
    model = run.transformer()
    model.head.weight = model.embedding.weight
    run.train(run.shard(model))


@job
def frozen(run):
    """the embedding and half of the blocks take no gradients"""
    model = run.transformer()
    for module in (model.embedding, *model.blocks[: run.layers // 2]):
        module.requires_grad_(False)
    run.train(run.shard(model))


class Adapter(nn.Module):
    """A frozen linear with a low-rank correction, as LoRA has it."""

    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False, device=base.weight.device, dtype=base.weight.dtype)
        self.up = nn.Linear(rank, base.out_features, bias=False, device=base.weight.device, dtype=base.weight.dtype)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


@job
def lora(run):
    """everything is frozen but low-rank adapters"""
    model = run.transformer().requires_grad_(False)
    for block in model.blocks:
        for name in ("qkv", "out", "up", "down"):
            setattr(block, name, Adapter(getattr(block, name)))
    run.train(run.shard(model))


@job
def hsdp(run):
    """HSDP: 2 × 2 on four GPUs, replicas of whole shards on two"""
    mesh = run.mesh(2, run.world // 2, names=("replicate", "shard"))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    run.train(run.shard(run.transformer(torch.float32), mesh=mesh, mp_policy=policy))


@job
def replicate(run):
    """the composable replicate on FSDP2's machinery"""
    try:
        from torch.distributed._composable.replicate_with_fsdp import replicate
    except ImportError:
        raise Skip("this PyTorch has no replicate_with_fsdp") from None
    model, mesh = run.transformer(), run.mesh()
    for block in model.blocks:
        replicate(block, mesh=mesh)
    run.train(replicate(model, mesh=mesh))


@job
def explicit_prefetch(run):
    """two units prefetched in forward and in backward"""
    model = run.shard(run.transformer())
    blocks = list(model.blocks)
    for i, block in enumerate(blocks):
        block.set_modules_to_forward_prefetch(blocks[i + 1 : i + 3])
        block.set_modules_to_backward_prefetch(blocks[max(0, i - 2) : i][::-1])
    run.train(model)


@job
def adamw_foreach(run):
    """AdamW(foreach=True)"""
    model = run.shard(run.transformer())
    run.train(model, run.adamw(model, foreach=True))


@job
def adamw_fused(run):
    """AdamW(fused=True)"""
    model = run.shard(run.transformer())
    run.train(model, run.adamw(model, fused=True))


@job
def adamw_forloop(run):
    """AdamW(foreach=False)"""
    model = run.shard(run.transformer())
    run.train(model, run.adamw(model, foreach=False))


@job
def sgd(run):
    """SGD with momentum"""
    model = run.shard(run.transformer())
    run.train(model, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))


@job
def clip(run):
    """clip_grad_norm_ before the optimizer, a learning rate schedule after it"""
    model = run.shard(run.transformer())
    optimizer = run.adamw(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    def step(ended):
        optimizer.zero_grad()
        loss = run.loss(model)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        ended()
        schedule.step()

    run.train(model, optimizer, step)


@job
def zero_grad_to_zero(run):
    """zero_grad(set_to_none=False)"""
    model = run.shard(run.transformer())
    optimizer = run.adamw(model)

    def step(ended):
        optimizer.zero_grad(set_to_none=False)
        loss = run.loss(model)
        loss.backward()
        optimizer.step()
        ended()

    run.train(model, optimizer, step)


@job
def zero_grad_last(run):
    """gradients cleared after the optimizer's step (a process of its own)"""
    model = run.shard(run.transformer())
    optimizer = run.adamw(model)

    def step(ended):
        loss = run.loss(model)
        loss.backward()
        optimizer.step()
        ended()
        optimizer.zero_grad()

    run.train(model, optimizer, step)


@job
def optimizer_in_backward(run):
    """an optimizer a parameter, stepping as its gradient comes (a process of its own)"""
    model = run.shard(run.transformer())
    optimizers = {parameter: torch.optim.AdamW([parameter], lr=1e-4) for parameter in model.parameters()}

    def hook(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(hook)

    def step(ended):
        loss = run.loss(model)
        loss.backward()
        ended()

    run.train(model, next(iter(optimizers.values())), step, tracker=None)


@job
def no_optimizer_class(run):
    """a plain loop of one's own: p -= lr * p.grad (a process of its own)"""
    model = run.shard(run.transformer())

    def step(ended):
        loss = run.loss(model)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 1e-3 * parameter.grad
                parameter.grad = None
        ended()

    run.train(model, run.adamw(model), step, tracker=None)


@job
def eval_no_grad(run):
    """an evaluation between steps"""
    model = run.shard(run.transformer())

    def between(_):
        model.eval()
        with torch.no_grad():
            for _ in range(2):
                run.loss(model)
        model.train()

    run.train(model, between=between)


@job
def checkpoint_state_dict(run):
    """the whole state dict gathered after a step, and loaded"""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
        set_model_state_dict,
    )

    model = run.shard(run.transformer())
    optimizer = run.adamw(model)

    def between(_):
        whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(model, whole if run.rank == 0 else {}, options=options)

    run.train(model, optimizer, between=between)


@job
def checkpoint_dcp(run):
    """torch.distributed.checkpoint saves and loads after a step"""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model = run.shard(run.transformer())
    optimizer = run.adamw(model)
    with tempfile.TemporaryDirectory(prefix="shardledger-dcp-") as own:
        place = [own]
        dist.broadcast_object_list(place)

        def between(number):
            weights, states = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": states}, checkpoint_id=f"{place[0]}/{number}")
            dcp.load({"model": weights, "optimizer": states}, checkpoint_id=f"{place[0]}/{number}")
            set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)

        run.train(model, optimizer, between=between)
        dist.barrier()


@job
def module_called_twice(run):
    """each block is called twice in a forward"""
    model = run.transformer()

    def forward(tokens):
        x = model.embedding(tokens)
        for _ in range(2):
            for block in model.blocks:
                x = block(x)
        return model.head(x)

    model.forward = forward
    run.train(run.shard(model))


class Fault(Exception):
    pass


class Faulty(nn.Module):
    """Raises when it is told to."""

    def __init__(self, module):
        super().__init__()
        self.module, self.armed = module, False

    def forward(self, x):
        x = self.module(x)
        if self.armed:
            raise Fault
        return x


@job
def forward_exception(run):
    """a forward raises in its second block, the loop catches it and goes on"""
    model = run.transformer()
    faulty = model.blocks[1].up = Faulty(model.blocks[1].up)
    run.shard(model)
    optimizer = run.adamw(model)

    def step(ended):
        optimizer.zero_grad()
        faulty.armed = True
        try:
            run.loss(model)
        except Fault:
            pass
        faulty.armed = False
        optimizer.zero_grad()
        loss = run.loss(model)
        loss.backward()
        optimizer.step()
        ended()

    run.train(model, optimizer, step, tracker=None)


@job
def varying_lengths(run):
    """a sequence length of its own for each step: blocks are split, cached and given back"""
    model = run.shard(run.transformer())
    optimizer = run.adamw(model)
    lengths = iter([run.sequence, run.sequence // 3, 3 * run.sequence // 4, run.sequence // 2])

    def step(ended):
        optimizer.zero_grad()
        loss = run.loss(model, run.tokens(next(lengths)))
        loss.backward()
        optimizer.step()
        ended()

    run.train(model, optimizer, step)


@job
def compiled_blocks(run):
    """torch.compile of each block (a process of its own)"""
    model = run.transformer()
    for block in model.blocks:
        block.compile()
    run.train(run.shard(model), tracker=None)


@job
def second_model(run):
    """a reference policy in the loss, and a moving average of the weights after the step"""
    model, average, reference = (run.shard(run.transformer()) for _ in range(3))
    for other in (average, reference):
        other.requires_grad_(False)
    optimizer = run.adamw(model)

    def step(ended):
        optimizer.zero_grad()
        tokens = run.tokens()
        with torch.no_grad():
            wanted = reference(tokens).float().log_softmax(-1)
        loss = (wanted.exp() * (wanted - model(tokens).float().log_softmax(-1))).sum()
        loss.backward()
        optimizer.step()
        ended()

    def between(_):
        with torch.no_grad():
            for mean, parameter in zip(average.parameters(), model.parameters()):
                mean.lerp_(parameter.detach(), 0.1)

    run.train(model, optimizer, step, between)


@job
def late_attach(run):
    """the companion is attached when the model and its optimizer state exist already (a process of its own)"""
    model = run.shard(run.transformer())
    optimizer = run.adamw(model)

    def step(ended):
        optimizer.zero_grad()
        loss = run.loss(model)
        loss.backward()
        optimizer.step()
        ended()

    step(lambda: None)
    import shardledger  # SHARDLEDGER_PYTHON=off kept it away until now

    if not shardledger.attach() and run.cuda:
        raise RuntimeError("shardledger.attach() found nobody who listens")
    run.train(model, optimizer, step)


@job
def tp_fsdp(run):
    """tensor parallel linears within FSDP2: 2 × 2 on four GPUs, 1 × 2 on two"""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = run.mesh(run.world // 2, 2, names=("dp", "tp"))
    model = run.transformer()
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    run.train(run.shard(model, mesh=mesh["dp"]))
