"""Tags: which storages of a job are named, as what, and when."""

import warnings

import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode

import shardledger


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x):
        return self.norm(self.linear(x))


def tags(calls, category):
    return {call[5]: call[2] for call in calls.named("tag") if call[3] == category}


def address(tensor):
    return tensor.untyped_storage().data_ptr()


def step(model, optimizer):
    model(torch.randn(3, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_parameters_and_buffers_are_tagged_at_the_first_call(companion):
    model = Model()
    model(torch.randn(3, 2))
    assert tags(companion.calls, "param") == {
        "linear.weight": address(model.linear.weight), "linear.bias": address(model.linear.bias),
        "norm.weight": address(model.norm.weight), "norm.bias": address(model.norm.bias)}
    assert tags(companion.calls, "buffer") == {
        "norm.running_mean": address(model.norm.running_mean), "norm.running_var": address(model.norm.running_var),
        "norm.num_batches_tracked": address(model.norm.num_batches_tracked)}
    ids = {call[3]: call[1] for call in companion.calls.named("module")}
    owners = {call[5]: call[4] for call in companion.calls.named("tag")}
    assert owners["norm.weight"] == ids["norm"]


def test_a_view_is_tagged_by_its_storage(companion):
    model = Model()
    data = torch.randn(9, 2)
    model(data[3:6])
    assert tags(companion.calls, "input") == {"": address(data)}


def test_optimizer_state_is_named_after_its_parameter_once(companion):
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        step(model, optimizer)
    assert set(tags(companion.calls, "optstate")) == {
        f"{parameter}.{state}" for parameter in ("linear.weight", "linear.bias", "norm.weight", "norm.bias")
        for state in ("step", "exp_avg", "exp_avg_sq")}
    assert len([call for call in companion.calls if call[:1] + call[3:4] == ("tag", "optstate")]) == 12


def test_gradients_of_the_first_steps_are_tagged(companion):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(3, 2)).sum().backward()
    optimizer.step()
    assert tags(companion.calls, "gradient")["linear.weight"] == address(model.linear.weight.grad)
    companion.calls.clear()
    for _ in range(4):
        step(model, optimizer)
    assert len([call for call in companion.calls if call[:1] + call[3:4] == ("tag", "gradient")]) == 2 * 4


def test_the_user_tags_with_words_of_his_own(companion):
    cache = torch.zeros(4)
    shardledger.tag(cache, "kv_cache", "layer 0")
    assert companion.calls.named("tag") == [("tag", 0, address(cache), "kv_cache", 0, "layer 0")]


def test_tensors_without_a_storage_or_on_other_devices_are_left_alone(companion):
    shardledger.tag(torch.zeros(4, device="meta"), "x")
    shardledger.tag(torch.zeros(0), "x")
    shardledger.tag(torch.sparse_coo_tensor([[0]], [1.0], (2,)), "x")
    shardledger.tag("no tensor", "x")
    assert companion.calls == [] and companion.guard.on


def test_lazy_parameters_have_no_bytes_and_do_no_harm(companion):
    model = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 1))
    model(torch.randn(2, 5))
    assert companion.guard.on


def test_shared_parameters_count_once(companion):
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    model(torch.randn(1, 2))
    assert {call[3]: call[7] for call in companion.calls.named("module")} == {"": 16, "0": 16, "1": 0}


def test_what_users_see_of_their_tensors_is_what_they_do_with_them(companion):
    class Seen(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.functions.append(function)
            return function(*args, **(kwargs or {}))

    def functions():
        model, seen = nn.Linear(2, 2), Seen()
        optimizer = torch.optim.Adam(model.parameters())
        with seen:
            seen.functions = []
            for _ in range(2):
                step(model, optimizer)
        return seen.functions

    seen = functions()
    assert tags(companion.calls, "optstate")
    companion.guard.on = False
    assert seen == functions()


class Suspicious(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        assert function is torch.nn.functional.linear
        return super().__torch_function__(function, types, args, kwargs).as_subclass(torch.Tensor)


def test_a_tensor_that_refuses_to_be_asked_is_tagged(companion):
    given = torch.ones(3, 2).as_subclass(Suspicious)
    nn.Linear(2, 2)(given)
    assert companion.guard.on and len(tags(companion.calls, "input")) == 1


class OwnMethods(nn.Linear):
    def parameters(self, learning_rate):
        raise NotImplementedError


class OwnState(torch.optim.SGD):
    state = []


def test_models_and_optimizers_with_methods_of_their_own_do_no_harm(companion):
    model = OwnMethods(2, 2)
    optimizer = OwnState(list(nn.Module.parameters(model)))
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert companion.guard.on and len(tags(companion.calls, "gradient")) == 2


def test_inputs_that_hold_themselves_are_looked_through_once(companion):
    class Picks(nn.Linear):
        def forward(self, batch):
            return super().forward(batch["x"])

    batch = {"x": torch.ones(1, 2), "list": []}
    batch["self"] = batch["list"].append(batch) or batch["list"]
    Picks(2, 2)(batch)
    assert companion.guard.on
    assert {call[2] for call in companion.calls.named("tag") if call[3] == "input"} == {address(batch["x"])}


def test_fake_tensors_are_not_tagged_and_not_complained_about(companion):
    with warnings.catch_warnings(), FakeTensorMode():
        warnings.simplefilter("error")
        model = nn.Linear(2, 2)
        step(model, torch.optim.SGD(model.parameters()))
    number = companion.calls.named("module")[0][1]  # the others are of models that other tests have left
    assert companion.guard.on and not [call for call in companion.calls.named("tag") if call[4] == number]
