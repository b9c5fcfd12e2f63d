"""Programs that compile, one after the other in one process, for compile_test.py: job_compile.py GROUP…

Prints one line of JSON for each: what it computed, and what torch.compile counted. With NVTX_INJECTION64_PATH set,
ShardLedger is attached first, or in the middle of the programs of the group `late`, which then has to be the only one.
"""

import copy
import json
import os
import sys
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")
PLUGIN = "NVTX_INJECTION64_PATH" in os.environ
PROGRAMS = {}  # {group: {name: function}}


def attach():
    if PLUGIN:
        import shardledger

        assert shardledger.attach()


def program(*groups, **choices):
    """Enters a function as a program for each combination of choices."""

    def enter(function):
        combinations = [{}]
        for word, values in choices.items():
            combinations = [dict(chosen, **{word: value}) for chosen in combinations for value in values]
        for group in groups:
            for chosen in combinations:
                name = " ".join([function.__name__, *(f"{word}={value}" for word, value in chosen.items())])
                PROGRAMS.setdefault(group, {})[name] = lambda function=function, chosen=chosen: function(**chosen)
        return function

    return enter


class Block(nn.Module):
    def __init__(self, broken=False):
        super().__init__()
        self.first, self.second, self.broken = nn.Linear(8, 8), nn.Linear(8, 8), broken

    def forward(self, x):
        x = self.first(x)
        if self.broken:
            torch._dynamo.graph_break()
        return x + self.second(torch.relu(x))


class Model(nn.Module):
    def __init__(self, blocks=3, broken=False):
        super().__init__()
        self.layers = nn.ModuleDict({str(i): Block(broken) for i in range(blocks)})
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        for block in self.layers.values():
            x = block(x)
        return self.out(x)


def train(call, parameters, steps=3):
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = call(torch.ones(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(round(float(loss.detach()), 5))
    return losses


def compile_blocks(model, how, **options):
    for name, block in model.layers.items():
        if how == "method":
            block.compile(**options)
        else:
            model.layers[name] = torch.compile(block, **options)


BLOCKS = dict(how=("method", "wrapper"), fullgraph=(True, False))


def select_modules(selection):
    """SHARDLEDGER_MODULES for the next model, where the companion is here; the environment is read once."""
    if "shardledger" in sys.modules:
        from shardledger._companion import options

        options.module_selection = lambda: int(selection) if selection.isdigit() else selection


@program("plain", selection=("0", "1"), how=("method",), fullgraph=(True,))
@program("plain", selection=("fsdp", "all"), **BLOCKS)
def blocks(how, fullgraph, selection="fsdp", count=12, backend="eager"):
    select_modules(selection)
    model = Model(count)
    compile_blocks(model, how, backend=backend, fullgraph=fullgraph)
    return train(model, model.parameters())


@program("plain")
def guards_of_compiled_blocks():
    """Whether they speak of what the model has, and of us."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    select_modules("all")
    model = Model()
    compile_blocks(model, "method", backend="eager", fullgraph=True)
    train(model, model.parameters())
    entries = [entry for code in (Block.forward.__code__, nn.Module._call_impl.__code__) for entry in _debug_get_cache_entry_list(code)]
    guards = "".join(str(entry.guard_manager) for entry in entries)
    for place in (os.path.dirname(os.path.dirname(torch.__file__)), os.path.dirname(os.path.abspath(__file__))):  # may have our name in them
        guards = guards.replace(place, "")
    return {"linear": "first" in guards, "shardledger": "shardledger" in guards}


@program("many", how=("wrapper",), selection=("fsdp",))
@program("many", how=("method",), selection=("all",))
def a_hundred_blocks(how, selection):
    return blocks(how, True, selection, count=100)


@program("inductor", how=("method",))
@program("plain", how=("method", "wrapper"))
def blocks_by_inductor(how):
    return blocks(how, True, count=3, backend="inductor" if GROUP == "inductor" else "aot_eager")


@program("plain", fullgraph=(True, False))
def an_ensemble(fullgraph):
    models = [Block() for _ in range(12)]
    calls = [torch.compile(model, backend="eager", fullgraph=fullgraph) for model in models]
    return train(lambda x: sum(call(x) for call in calls), [p for model in models for p in model.parameters()])


@program("inductor", how=("wrapper",))
@program("plain", how=("method", "wrapper", "function"))
def the_whole(how, broken=False, backend=None, **options):
    model = Model(broken=broken)
    backend = backend or ("inductor" if GROUP == "inductor" else "eager")
    call = model
    if how == "method":
        model.compile(backend=backend, **options)
    else:
        call = torch.compile(model if how == "wrapper" else lambda x: model(x) * 2, backend=backend, **options)
    return train(call, model.parameters())


@program("plain", how=("method", "wrapper", "function"))
def a_whole_whose_blocks_break_the_graph(how):
    return the_whole(how, broken=True)


@program("plain", how=("method", "wrapper"))
def another_batch_size(how):
    model = Model()
    compile_blocks(model, how, backend="eager")
    return [round(float(model(torch.ones(n, 8)).sum()), 4) for n in (4, 5, 6, 4)]


@program("plain", how=("method", "wrapper", "function"))
def hooks_of_the_users(how):
    seen = []
    model = Model()
    for block in model.layers.values():
        block.register_forward_hook(lambda module, args, output: output * 2)
        block.first.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    model.register_forward_hook(lambda *_: seen.append(1))
    if how == "method":
        model.compile(backend="eager")
    call = {"method": model, "wrapper": torch.compile(model, backend="eager"),
            "function": torch.compile(lambda x: model(x), backend="eager")}[how]
    return train(call, model.parameters()), len(seen)


@program("plain")
def first_plain_then_compiled():
    model = Model()
    losses = train(model, model.parameters())
    compile_blocks(model, "method", backend="eager", fullgraph=True)
    losses += train(model, model.parameters())
    return losses + train(torch.compile(model, backend="eager"), model.parameters())


@program("plain")
def parts_of_a_whole_called_by_themselves():
    model = Model()
    compile_blocks(model, "method", backend="eager", fullgraph=True)
    results = []
    for _ in range(3):
        results.append(round(float(model(torch.ones(4, 8)).sum()), 4))
        results += [round(float(block(torch.ones(4, 8)).sum()), 4) for block in model.layers.values()]
    return results


@program("plain")
def compiled_in_compiled():
    model = Model()
    compile_blocks(model, "method", backend="eager")
    losses = train(model, model.parameters())
    return losses + train(torch.compile(model, backend="eager"), model.parameters())


@program("plain")
def copies_of_compiled_models():
    model = Model()
    model.compile(backend="eager")
    losses = train(model, model.parameters())
    other = copy.deepcopy(model)
    other.compile(backend="eager")
    return losses + train(other, other.parameters())


@program("plain", stance=("force_eager", "eager_on_recompile", "fail_on_recompile"))
def stances(stance):
    model = Model()
    compile_blocks(model, "method", backend="eager")
    losses = train(model, model.parameters())
    with torch.compiler.set_stance(stance):
        return losses + train(model, model.parameters())


@program("plain", optimizer=("SGD", "AdamW", "Adagrad"))
def a_compiled_optimizer(optimizer):
    model = Model(1)
    stepper = getattr(torch.optim, optimizer)(model.parameters(), lr=torch.tensor(0.01) if optimizer == "AdamW" else 0.01)
    step = torch.compile(lambda: stepper.step(), backend="eager")
    losses = []
    for _ in range(3):
        stepper.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        step()
        losses.append(round(float(loss.detach()), 5))
    return losses


@program("plain", backend=("eager", "aot_eager"))
def a_compiled_step(backend):
    model = Model(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @torch.compile(backend=backend)
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return [round(float(step(torch.ones(4, 8))), 5) for _ in range(4)]


@program("plain", backend=("eager", "aot_eager"))
def gradients_in_a_graph(backend):
    model = Model(1)

    @torch.compile(backend=backend)
    def gradients(x):
        loss = model(x).square().mean()
        return torch.autograd.grad(loss, list(model.parameters()))

    return [round(float(sum(g.sum() for g in gradients(torch.ones(4, 8)))), 4) for _ in range(3)]


@program("plain", what=("eager", "blocks", "whole", "configured"))
def compiled_autograd(what):
    from torch._dynamo import compiled_autograd

    model = Model()
    if what in ("blocks", "whole"):
        compile_blocks(model, "method", backend="eager") if what == "blocks" else model.compile(backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    if what == "configured":
        step = torch.compile(step, backend="eager")
    for _ in range(4):
        optimizer.zero_grad()
        with torch._dynamo.config.patch(compiled_autograd=what == "configured"):
            if what == "configured":
                loss = step(torch.ones(4, 8))
            else:
                loss = model(torch.ones(4, 8)).square().mean()
                with compiled_autograd._enable(torch.compile(backend="eager")):
                    loss.backward()
        optimizer.step()
        losses.append(round(float(loss.detach()), 5))
    return losses


@program("plain")
def a_checkpointed_block():
    from torch.utils.checkpoint import checkpoint

    model = Model(4)
    compile_blocks(model, "method", backend="aot_eager", fullgraph=True)

    def call(x):
        for block in model.layers.values():
            x = checkpoint(block, x, use_reentrant=False)
        return model.out(x)

    return train(call, model.parameters())


@program("plain", strict=(True, False), called=(True, False))
def exported(strict, called):
    model = Model()
    losses = train(model, model.parameters()) if called else []
    graph = torch.export.export(model, (torch.ones(4, 8),), strict=strict)
    return losses, [node.name for node in graph.graph.nodes], sorted(graph.state_dict)


@program("plain", called=(True, False))
def scripted_and_traced(called):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    losses = train(model, model.parameters()) if called else []
    traced, scripted = torch.jit.trace(model, torch.ones(4, 8)), torch.jit.script(model)
    return losses, str(traced.inlined_graph), str(scripted.inlined_graph), train(scripted, scripted.parameters())


@program("plain", called=(True, False))
def transformed(called):
    model = Model()
    losses = train(model, model.parameters()) if called else []
    parameters = dict(model.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x,)).square().mean()

    gradients = torch.func.grad(loss)(parameters, torch.ones(4, 8))
    compiled = torch.compile(torch.func.grad(loss), backend="eager")(parameters, torch.ones(4, 8))
    mapped = torch.func.vmap(model)(torch.ones(3, 8))
    graph = torch.fx.symbolic_trace(model)
    return (losses, round(float(sum(g.sum() for g in gradients.values())), 4), list(mapped.shape),
            round(float(sum(g.sum() for g in compiled.values())), 4), [node.name for node in graph.graph.nodes])


@program("ddp", how=("blocks", "whole"), optimize=("ddp_optimizer", "no_optimization", "python_reducer"))
def distributed_data_parallel(how, optimize):
    process_group()
    model = Model()
    if how == "blocks":
        compile_blocks(model, "method", backend="eager")
    with torch._dynamo.config.patch(optimize_ddp=optimize, compiled_autograd=optimize == "python_reducer"):
        wrapped = nn.parallel.DistributedDataParallel(model)
        call = wrapped if how == "blocks" else torch.compile(wrapped, backend="eager")
        return train(call, model.parameters())


@program("fsdp", selection=("0", "1"), how=("method",), fullgraph=(True,))
@program("fsdp", selection=("fsdp", "all"), **BLOCKS)
def fully_sharded(how, fullgraph, selection, whole=False):
    from torch.distributed.fsdp import fully_shard

    process_group()
    select_modules(selection)
    model = Model(12)
    if not whole:
        compile_blocks(model, how, backend="eager", fullgraph=fullgraph)
    for block in model.layers.values():
        fully_shard(block)
    fully_shard(model)
    call = model
    if whole and how == "method":
        model.compile(backend="eager")
    elif whole:
        call = torch.compile(model, backend="eager")
    return train(call, model.parameters())


@program("fsdp", how=("method", "wrapper"), selection=("fsdp", "all"))
def fully_sharded_and_compiled_whole(how, selection):
    return fully_sharded(how, False, selection, whole=True)


def trainer(call, model, compiled_optimizer=False):
    """A function that trains for a step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = torch.compile(lambda: optimizer.step(), backend="eager") if compiled_optimizer else optimizer.step

    def run():
        optimizer.zero_grad()
        loss = call(torch.ones(4, 8)).square().mean()
        loss.backward()
        step()
        return round(float(loss.detach()), 5)

    return run


def trainers():
    for how in ("method", "wrapper"):
        model = Model(12)
        compile_blocks(model, how, backend="eager", fullgraph=True)
        yield f"blocks {how}", trainer(model, model, compiled_optimizer=how == "method")
    for broken in (False, True):
        for hooked in (False, True):
            model = Model(broken=broken)
            if hooked:
                model.layers["1"].register_forward_hook(lambda module, args, output: output * 2)
            yield f"whole {broken} {hooked}", trainer(torch.compile(model, backend="eager"), model)
            yield f"function {broken} {hooked}", trainer(torch.compile(lambda x, model=model: model(x), backend="eager"), model)
            model = copy.deepcopy(model)
            model.compile(backend="eager")
            yield f"method {broken} {hooked}", trainer(model, model)


@program("late")
def attached_in_the_middle():
    """What was compiled before is not compiled again."""
    steps = dict(trainers())
    losses = [step() for _ in range(2) for step in steps.values()]
    attach()
    compiled = {}
    for name, step in steps.items():
        before = counts()
        losses += [step(), step()]
        after = counts()
        compiled[name] = [after["frames"]["total"] - before["frames"]["total"],
                          after["stats"]["unique_graphs"] - before["stats"]["unique_graphs"]]
    return losses, compiled


@program("late")
def and_what_comes_later():
    return blocks("method", True), the_whole("wrapper"), a_compiled_optimizer("AdamW")


def process_group():
    import torch.distributed as dist

    if not dist.is_initialized():
        store = dist.FileStore(os.environ["RENDEZVOUS"], int(os.environ["WORLD_SIZE"]))
        dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))


def counts():
    from torch._dynamo.utils import counters

    counted = {group: dict(counters[group]) for group in ("stats", "frames", "graph_break", "recompiles", "compiled_autograd")}
    counted["graph_break"] = sum(counted["graph_break"].values())
    return counted


def run(group, name, function):
    global GROUP
    GROUP = group
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    select_modules("fsdp")
    torch.manual_seed(0)
    try:
        result = function()
    except Exception as error:  # torch refuses some of it, and is to go on doing so
        result = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
    print(json.dumps({"group": group, "name": name, "result": result, "counts": counts()}), flush=True)


def main(groups):
    if "late" not in groups:
        attach()
    import torch._dynamo
    import torch._inductor.config

    torch._inductor.config.cpp_cache_precompile_headers = False  # there are few sources
    for group in groups:
        for name, function in PROGRAMS[group].items():
            run(group, name, function)
    if PLUGIN:
        from shardledger._companion import guard

        assert guard.on, "the companion is off"


GROUP = None  # whose program runs
if __name__ == "__main__":
    main(sys.argv[1:])
