"""Models that nothing calls: found after the first steps, and tagged like any other."""

import copy
import gc
import time

import pytest
import torch
from torch import nn

from small_model import Model, address

from shardledger._companion.tagging import uncalled


@pytest.fixture(autouse=True)
def alone():
    """Models of tests before are gone."""
    gc.collect()


def owners(calls):
    """{address: (category, root's class, tensor's name)} as tagged last."""
    classes, parents = {}, {}
    for _, number, parent, _, class_name, *_ in calls.named("module"):
        classes[number], parents[number] = class_name, parent

    def root(number):
        while parents.get(number):
            number = parents[number]
        return classes.get(number, "")

    return {call[2]: (call[3], root(call[4]), call[5]) for call in calls.named("tag")}


def train(model, steps=1, called=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        (called or model)(torch.randn(3, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


class Average(Model):
    """A copy of its own class, to be told apart."""


def test_a_copy_that_nothing_calls_is_tagged_at_the_first_steps_end(companion):
    model, average = Model(), Average()
    average.load_state_dict(model.state_dict())
    train(model)
    found = owners(companion.calls)
    assert found[address(average.linear.weight)] == ("param", "Average", "linear.weight")
    assert found[address(average.norm.running_mean)] == ("buffer", "Average", "norm.running_mean")
    assert found[address(model.linear.weight)] == ("param", "Model", "linear.weight")
    companion.calls.clear()
    train(model, 3)
    assert not [call for call in companion.calls.named("tag") if call[2] == address(average.linear.weight)]
    assert not companion.calls.named("module"), "it is registered once"


def test_another_model_that_is_trained_later_is_reason_to_look_again(companion):
    train(Model(), 3)
    model, average = Model(), Average()
    train(model)
    assert owners(companion.calls)[address(average.linear.weight)] == ("param", "Average", "linear.weight")
    made_after_a_step = copy.deepcopy(average)
    train(model)
    assert owners(companion.calls)[address(made_after_a_step.linear.weight)] == ("param", "Average", "linear.weight")


def test_memory_that_was_a_dead_models_is_another_models_now(companion):
    dead, model = Model(), Model()
    train(dead)
    storage = dead.linear.weight.untyped_storage()
    del dead
    average = Average()
    average.linear.weight.data = torch.empty(0).set_(storage, 0, (2, 2))
    train(model)
    assert owners(companion.calls)[address(average.linear.weight)] == ("param", "Average", "linear.weight")


def test_models_that_are_not_trained_and_too_many_of_them_are_no_reason(companion, monkeypatch):
    model = Model()
    train(model, 2)
    late, frozen = Average(), Model().requires_grad_(False)
    frozen(torch.randn(3, 2))
    train(model)
    monkeypatch.setattr(uncalled, "_LOOKS_MAX", uncalled._looks)
    train(Model())
    assert "Average" not in {call[4] for call in companion.calls.named("module")}
    del late


def test_what_two_models_share_stays_with_the_one_that_is_called(companion):
    model, average = Model(), Average()
    average.linear.bias = model.linear.bias
    average.norm.running_mean = model.norm.running_mean
    train(model)
    found = owners(companion.calls)
    assert found[address(model.linear.bias)] == ("param", "Model", "linear.bias")
    assert found[address(model.norm.running_mean)] == ("buffer", "Model", "norm.running_mean")
    assert found[address(average.linear.weight)] == ("param", "Average", "linear.weight")


class Holder(nn.Module):
    """Of a class of its own, as models of other tests may still be there."""


def test_a_holder_of_a_called_model_is_left_alone_and_its_other_parts_are_found(companion):
    holder = Holder()
    holder.model, holder.average = Model(), Average()
    train(holder.model)
    found = owners(companion.calls)
    assert found[address(holder.model.linear.weight)] == ("param", "Model", "linear.weight")
    assert found[address(holder.average.linear.weight)] == ("param", "Average", "linear.weight")
    assert "Holder" not in {call[4] for call in companion.calls.named("module")}


def test_a_model_that_is_called_later_gets_its_ranges_then(companion):
    model, late = Model(), Average()
    train(model)
    companion.calls.clear()
    late.eval()
    with torch.no_grad():
        late(torch.randn(3, 2))
    assert "Average" in [call[2].decode() if isinstance(call[2], bytes) else call[2] for call in companion.calls.named("push")]
    assert not companion.calls.named("module"), "it is known already"


def test_objects_that_pretend_to_be_modules_are_not_asked(companion):
    class Pretender:
        asked = False

        @property
        def __class__(self):
            Pretender.asked = True
            return nn.Module

    pretender = Pretender()
    train(Model())
    assert not Pretender.asked
    del pretender


def test_a_model_that_cannot_be_walked_leaves_the_others_and_the_companion_alone(companion, capfd):
    class Broken(Model):
        def modules(self):
            raise RuntimeError("the walk needs no method of the model's own")

    class Table(dict):
        def items(self):
            raise RuntimeError("no walk")

    broken, model, average = Broken(), Model(), Average()
    broken._modules = Table(broken._modules)
    train(model)
    assert owners(companion.calls)[address(average.linear.weight)] == ("param", "Average", "linear.weight")
    assert "a Broken can't be read and is left out (RuntimeError: no walk)" in capfd.readouterr().err
    companion.calls.clear()
    train(model)
    assert companion.calls.named("push"), "the companion is on"
    del broken


def test_a_copied_model_in_a_list_is_found(companion):
    model = Model()
    copies = [copy.deepcopy(model)]
    train(model)
    assert address(copies[0].linear.weight) in owners(companion.calls)


def test_looking_among_a_million_objects_takes_less_than_a_second(companion):
    crowd = [[] for _ in range(1_000_000)]

    def seconds():
        begin = time.process_time()
        uncalled._outermost()
        return time.process_time() - begin

    assert min(seconds() for _ in range(5)) < 1
    del crowd


def test_what_fsdp_keeps_gathered_in_a_model_that_is_only_evaluated_gets_its_names(companion, tmp_path):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        model, reference = Model(), Average()
        for module in (model, reference):
            fsdp.fully_shard(module, mesh=mesh)

        def both(x):
            with torch.no_grad():
                wanted = reference(x)
            return model(x) - wanted

        train(model, called=both)
        gathered = {call[5]: call[2] for call in companion.calls.named("tag") if call[3] == "unsharded_param"}
        assert gathered == {f"{layer}.{name}": address(getattr(getattr(reference, layer), name))
                            for layer in ("linear", "norm") for name in ("weight", "bias")}
    finally:
        torch.distributed.destroy_process_group()
