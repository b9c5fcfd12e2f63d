"""Names of modules under the wrappers that people combine: FSDP2's own names where it has any."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # torch < 2.6
    from torch.distributed._composable.fsdp import fully_shard

from shardledger.kinds import MODULE_DDP, MODULE_FSDP, MODULE_RECOMPUTE


@pytest.fixture(scope="module")
def process_group(tmp_path_factory):
    rendezvous = tmp_path_factory.mktemp("rendezvous") / "file"
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def compiled(module):
    torch._dynamo.reset()
    return torch.compile(module, backend="eager")


def sharded(module):
    fully_shard(module)
    return module


ORDERS = {
    "sharded": [sharded],
    "checkpointed, then sharded": [checkpoint_wrapper, sharded],
    "sharded, then checkpointed": [sharded, checkpoint_wrapper],
    "compiled, then sharded": [compiled, sharded],
}


def names_by_fsdp(root):
    """The suffixes of FSDP's ranges, which it decides at its first forward."""
    states = [module._get_fsdp_state() for module in root.modules() if hasattr(module, "_get_fsdp_state")]
    groups = [state._fsdp_param_group for state in states]
    return {group._module_fqn for group in groups if group is not None and group._module_fqn}


# Without a compiled root over compiled units, which torch itself fails to trace.
@pytest.mark.parametrize("order, root", [(order, root) for order in ORDERS for root in ("sharded", "compiled")
                                         if not ("compiled" in order and root == "compiled")])
def test_units_have_fsdps_names(companion, process_group, order, root):
    model = Model()
    for i in range(2):
        for wrap in ORDERS[order]:
            model.blocks[i] = wrap(model.blocks[i])
    fully_shard(model)
    call = compiled(model) if root == "compiled" else model
    call(torch.randn(2, 4)).sum().backward()
    modules = companion.calls.named("module")
    units = {call[3] for call in modules if call[5] & MODULE_FSDP}
    assert units - {""} == names_by_fsdp(model)
    assert "" in units
    assert companion.guard.on
    for call in modules:
        if call[4] == "Linear":  # what is inside a wrapper is named without it
            assert call[3] in ("blocks.0.linear", "blocks.1.linear")


@pytest.mark.parametrize("order", [o for o in ORDERS if "checkpointed" in o])
def test_units_under_checkpointing_are_recomputed_by_their_names(companion, process_group, order):
    model = Model()
    for i in range(2):
        for wrap in ORDERS[order]:
            model.blocks[i] = wrap(model.blocks[i])
    fully_shard(model)
    model(torch.randn(2, 4)).sum().backward()
    recomputed = [r[len("+recompute "):] for r in companion.calls.ranges() if r.startswith("+recompute")]
    units = {call[3] for call in companion.calls.named("module") if call[5] & MODULE_FSDP} - {""}
    # FSDP's unit runs again only where checkpointing is around it; else what the wrapper inside of it wraps does.
    inner = "._checkpoint_wrapped_module"
    assert len(recomputed) == 2 and {name.removesuffix(inner) for name in recomputed} == {u.removesuffix(inner) for u in units}
    assert sum(bool(call[5] & MODULE_RECOMPUTE) for call in companion.calls.named("module")) == 2


@pytest.mark.parametrize("tied", [False, True])
def test_bytes_are_of_the_shards_also_while_a_unit_is_unsharded(companion, process_group, tied):
    model = Model()
    if tied:
        model.blocks[1].linear.weight = model.blocks[0].linear.weight
    fully_shard(model)
    with torch.no_grad():
        companion.guard.on = False
        model(torch.randn(2, 4))  # leaves the root unsharded
        companion.guard.on = True
    model(torch.randn(2, 4))
    bytes_of = {call[3]: call[7] for call in companion.calls.named("module")}
    assert bytes_of[""] == 4 * (16 + 4 + (0 if tied else 16) + 4)
    categories = {call[3] for call in companion.calls.named("tag")}
    assert "sharded_param" in categories and "param" not in categories


def test_ddp_has_ranges_where_it_builds_its_buckets(companion, process_group):
    model = nn.parallel.DistributedDataParallel(Model())
    for _ in range(2):
        model(torch.randn(2, 4)).sum().backward()
    ranges = companion.calls.ranges()
    assert ranges[0] == "+record_function DistributedDataParallel.__init__"
    assert [call[5] & MODULE_DDP for call in companion.calls.named("module")][:2] == [MODULE_DDP, 0]
    assert ranges.count("+record_function DistributedDataParallel._pre_forward") == 2
    assert sum(text.startswith("+") for text in ranges) == ranges.count("-")


def pushed(calls):
    return [call[2] for call in calls.named("push")]


class Wrapped(nn.Module):
    """As wrappers of other libraries put a model deep inside."""

    def __init__(self, inner):
        super().__init__()
        self.model = inner

    def forward(self, x):
        return self.model(x)


class Expert(nn.Linear):
    pass


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(Expert(4, 4) for _ in range(3))

    def forward(self, x):
        return sum(expert(x) for expert in self.experts)


class Transformer(nn.Module):
    def __init__(self, blocks, wrap=lambda block: block):
        super().__init__()
        self.embedding = nn.Linear(4, 4)
        self.layers = nn.ModuleList(wrap(block()) for _ in range(blocks))
        self.act = nn.Sequential(nn.ReLU(), nn.ReLU())

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.act(x)


def block():
    return Wrapped(Experts())


DEEP = ["Wrapped", "model", "model.model"]  # the root, and what depth 2 gives


@pytest.mark.parametrize("wrap", [lambda block: block, checkpoint_wrapper])
def test_the_blocks_of_a_model_have_ranges_however_deep_it_is_and_nothing_inside_of_them(companion, wrap):
    model = Wrapped(Wrapped(Wrapped(Transformer(3, wrap))))
    model(torch.randn(2, 4))
    assert pushed(companion.calls) == DEEP + [f"model.model.model.layers.{i}" for i in range(3)]


def test_what_the_depth_gives_inside_of_blocks_stays(companion):
    Wrapped(nn.Sequential(Block(), Block()))(torch.randn(2, 4))
    assert pushed(companion.calls) == ["Wrapped", "model", "model.0", "model.1"]
    companion.calls.clear()
    nn.Sequential(Block(), Block())(torch.randn(2, 4))
    assert pushed(companion.calls) == ["Sequential", "0", "0.linear", "1", "1.linear"]


def test_a_list_that_is_too_long_has_none_and_another_one_has(companion):
    model = Wrapped(Wrapped(Wrapped(nn.Sequential(Transformer(513), Transformer(2)))))
    model(torch.randn(2, 4))
    assert [name for name in pushed(companion.calls) if name not in DEEP] == ["model.model.model.0", "model.model.model.1"]
    companion.calls.clear()
    model = Wrapped(Wrapped(Wrapped(nn.Sequential(Wrapped(nn.Sequential(*(nn.Linear(4, 4) for _ in range(513)))),
                                                  nn.ReLU(), Transformer(2)))))
    model(torch.randn(2, 4))
    assert [name for name in pushed(companion.calls) if name not in DEEP] == [f"model.model.model.2.layers.{i}" for i in (0, 1)]


def test_the_selection_by_depth_means_that_depth_only(companion, monkeypatch):
    monkeypatch.setenv("SHARDLEDGER_MODULES", "2")
    Wrapped(Wrapped(Wrapped(Transformer(3))))(torch.randn(2, 4))
    assert pushed(companion.calls) == DEEP


def test_two_models_of_one_class_have_an_id_each(companion):
    for _ in range(2):
        Block()(torch.randn(2, 4))
    roots = [call for call in companion.calls.named("module") if call[2] == 0]
    assert [call[4] for call in roots] == ["Block", "Block"] and roots[0][1] < roots[1][1]
    assert [call[3] for call in companion.calls.named("push") if call[2] == "Block"] == [root[1] for root in roots]
