"""What torch makes of a model by reading it is the same as without the companion."""

import copy
import pickle

import pytest
import torch
from torch import nn


def model():
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))


def x():
    return torch.ones(3, 4)


def hooks(root):
    tables = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs",
              "_forward_hooks_always_called")
    return [hook for module in root.modules() for table in tables for hook in getattr(module, table)]


pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


def users_pre_hook(module, args):
    return None


@pytest.fixture
def called(companion):
    """A model that the companion has seen a call of."""
    found = model()
    found(x()).sum().backward()
    assert "+forward Sequential" in companion.calls.ranges() and not hooks(found)
    yield found
    assert not hooks(found) and companion.guard.on
    companion.calls.clear()
    found(x())
    assert "+forward Sequential" in companion.calls.ranges(), "it is still seen"


def test_a_pickle_is_the_one_that_it_was_before(companion):
    found = model()
    found[0].register_forward_pre_hook(users_pre_hook)
    before = pickle.dumps(found)
    with torch.no_grad():
        found(x())
    assert not hooks(found[1]) and pickle.dumps(found) == before


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_keeps_the_users_hooks_and_none_of_ours(called, copied):
    handle = called.register_forward_pre_hook(users_pre_hook)
    assert hooks(copied(called)[1]) == []
    assert list(copied(called)._forward_pre_hooks.values()) == [users_pre_hook]
    handle.remove()


def test_it_can_be_scripted(called):
    assert torch.equal(torch.jit.script(called)(x()), called(x()))
    assert torch.equal(torch.jit.script(copy.deepcopy(called))(x()), called(x()))


@pytest.mark.parametrize("make", [torch.jit.script, lambda found: torch.jit.trace(found, x())])
@pytest.mark.parametrize("place", [lambda made: made, lambda made: nn.Sequential(made, nn.Linear(2, 2))])
def test_what_was_made_of_it_can_be_trained(companion, make, place):
    made = place(make(model()))
    parameters = {p.untyped_storage().data_ptr() for p in made.parameters()}
    for _ in range(2):
        made(x()).sum().backward()
        torch.optim.SGD(made.parameters()).step()
    assert companion.guard.on
    assert parameters <= {call[2] for call in companion.calls.named("tag") if call[3] == "param"}
    assert [r for r in companion.calls.ranges() if "step step" in r] == [
        "start step step 0", "end step step 0", "start step step 1", "end step step 1"]


def test_it_can_be_traced_also_when_nothing_has_called_it_before(companion, called):
    for each in (called, copy.deepcopy(called)):
        assert torch.equal(torch.jit.trace(each, x())(x()), called(x()))


@pytest.mark.parametrize("strict", [False, True])
def test_it_can_be_exported(called, strict):
    exported = torch.export.export(mod=called, args=(x(),), strict=strict)
    fresh = torch.export.export(copy.deepcopy(called), (x(),), strict=strict)
    assert torch.equal(exported.module()(x()), called(x()))
    assert str(exported.graph) == str(fresh.graph)


def test_backward_under_compiled_autograd_is_one_graph(companion, called):
    torch._dynamo.reset()
    expected = [parameter.grad.clone() for parameter in called.parameters()]
    called.zero_grad()
    loss = called(x()).sum()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        loss.backward()
    assert all(torch.equal(p.grad, grad) for p, grad in zip(called.parameters(), expected))


def test_a_program_that_clears_all_hooks_is_seen_again(companion, called):
    for module in called.modules():
        module._forward_pre_hooks.clear()
        module._forward_hooks.clear()
    for _ in range(2):
        companion.calls.clear()
        called(x())
        ranges = companion.calls.ranges()
        assert sum(r.startswith("+") for r in ranges) == ranges.count("-") == 5


def test_a_range_of_the_users_does_not_break_the_graph_that_it_is_in(companion, monkeypatch):
    import shardledger

    torch._dynamo.reset()
    for name in ("push", "pop", "mark"):  # as calls of C do
        monkeypatch.setattr(companion.native, name, lambda *_: torch._dynamo.graph_break())

    @shardledger.range("whole")
    def double(x):
        with shardledger.range("part"):
            shardledger.mark("instant")
            return x * 2

    assert torch.equal(torch.compile(double, backend="eager", fullgraph=True)(x()), x() * 2)
