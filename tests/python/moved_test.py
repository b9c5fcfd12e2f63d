"""What was tagged and moves is tagged again, in every iteration, and nothing else is."""

import copy
import gc
import time
import weakref

import pytest
import torch
from torch import nn

from small_model import Model, address

from shardledger._companion.tagging import moved, tags


def tagged(calls, *categories):
    return {call[5]: call[2] for call in calls.named("tag") if call[3] in categories}


def step(model, optimizer):
    model(torch.randn(3, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def train(model, optimizer, steps):
    for _ in range(steps):
        step(model, optimizer)


def names(model):
    return {name: address(tensor) for table in (model.named_parameters(), model.named_buffers()) for name, tensor in table}


def as_offloaded(model):
    """Every storage is gone, and another one is there, at another address or at the same."""
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    for module in model.modules():
        for name, buffer in module._buffers.items():
            module._buffers[name] = buffer.clone()


@pytest.fixture
def trained(companion):
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, 4)
    companion.calls.clear()
    return companion, model, optimizer


def test_what_stays_is_not_tagged_again(trained):
    companion, model, optimizer = trained
    train(model, optimizer, 10)
    assert tagged(companion.calls, "param", "buffer", "optstate", "gradient") == {}


def test_a_model_that_is_offloaded_and_comes_back_is_tagged_in_every_iteration(trained):
    companion, model, optimizer = trained
    for _ in range(3):
        companion.calls.clear()
        as_offloaded(model)
        step(model, optimizer)
        assert tagged(companion.calls, "param", "buffer") == names(model)
        order = [call[:1] + call[3:4] for call in companion.calls if call[0] == "tag" or call[:2] == ("start", 1)]
        assert order[0] == ("tag", "param"), "before its step begins"


def test_a_model_that_comes_back_to_the_same_address_is_tagged(trained):
    """It is another allocation all the same."""
    companion, model, optimizer = trained
    memory = bytearray(64)
    for _ in range(3):
        model.linear.weight.data = torch.frombuffer(memory, dtype=torch.float32)[:4].view(2, 2)
        companion.calls.clear()
        step(model, optimizer)
        assert tagged(companion.calls, "param") == {"linear.weight": address(model.linear.weight)}
    companion.calls.clear()
    step(model, optimizer)
    assert tagged(companion.calls, "param") == {}


def test_what_is_elsewhere_while_a_step_begins_is_tagged_when_it_is_back(trained):
    companion, model, optimizer = trained
    states = [(state, key) for state in optimizer.state.values() for key in state]
    for _ in range(2):
        kept = [parameter.data for parameter in model.parameters()], [state[key] for state, key in states]
        for parameter in model.parameters():
            parameter.data = torch.empty(0)
        for state, key in states:
            state[key] = torch.empty(0)
        companion.calls.clear()
        moved.step_begins()
        assert companion.calls.named("tag") == []
        for parameter, data in zip(model.parameters(), kept[0]):
            parameter.data = data  # the same memory: an allocation that was kept for it, say
        for (state, key), tensor in zip(states, kept[1]):
            state[key] = tensor
        moved.step_begins()
        assert tagged(companion.calls, "param") == {name: address(value) for name, value in model.named_parameters()}
        assert len(tagged(companion.calls, "optstate")) == 12


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_dict_that_is_loaded(trained, assign):
    companion, model, optimizer = trained
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=assign)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step(model, optimizer)
    assert tagged(companion.calls, "param", "buffer") == (names(model) if assign else {})
    if not assign:  # else the optimizer has the parameters that the model had
        made = optimizer.state[model.linear.weight]["exp_avg"]
        assert tagged(companion.calls, "optstate")["linear.weight.exp_avg"] == address(made)
    companion.calls.clear()
    train(model, optimizer, 3)
    assert tagged(companion.calls, "param", "buffer", "optstate") == {}


def test_state_that_is_loaded_before_the_first_step_is_tagged_where_that_begins(companion):
    model = Model()
    other = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    other.step()
    resumed = torch.optim.Adam(model.parameters())
    resumed.load_state_dict(other.state_dict())
    model(torch.randn(3, 2))
    addresses = {address(value) for state in resumed.state.values() for value in state.values()}
    assert addresses <= {call[2] for call in companion.calls.named("tag") if call[3] == "optstate"}


def test_weights_that_are_exchanged_for_their_average_and_back(trained):
    companion, model, optimizer = trained
    average = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    own = {name: parameter.data for name, parameter in model.named_parameters()}
    before = names(model)
    for name, parameter in model.named_parameters():
        parameter.data = average[name]
    with torch.no_grad():
        model(torch.randn(3, 2))
    for name, parameter in model.named_parameters():
        parameter.data = own[name]
    companion.calls.clear()
    step(model, optimizer)
    assert tagged(companion.calls, "param") == {name: before[name] for name in own}


def test_a_copy_in_a_dict_is_nobodys(companion):
    model = Model()
    average = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 3)
    assert not {address(tensor) for tensor in average.values()} & {call[2] for call in companion.calls.named("tag")}


def test_gradients_that_are_kept_and_move_between_steps(trained):
    companion, model, optimizer = trained
    for _ in range(2):
        companion.calls.clear()
        model(torch.randn(3, 2)).sum().backward()
        optimizer.step()  # and are not cleared
        for parameter in model.parameters():
            parameter.grad = parameter.grad.clone()
        expected = address(model.linear.weight.grad)
        model(torch.randn(3, 2)).sum().backward()
        assert tagged(companion.calls, "gradient")["linear.weight"] == expected
        optimizer.step()


def test_one_parameter_among_many_that_moves_is_found_in_time(companion):
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(20)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 4)
    companion.calls.clear()
    model[3].bias.data = model[3].bias.data.clone()
    train(model, optimizer, 20)
    assert tagged(companion.calls, "param") == {"3.bias": address(model[3].bias)}


def test_more_models_than_are_looked_at_at_once(companion):
    models = [Model() for _ in range(20)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for model in models:
        model(torch.randn(3, 2)).sum().backward()
    companion.calls.clear()
    as_offloaded(models[15])
    for _ in range(4):
        step(models[0], optimizers[0])
    assert tagged(companion.calls, "param", "buffer") == names(models[15])


def test_nothing_is_kept_alive(trained):
    companion, model, optimizer = trained
    copied = copy.deepcopy(model)
    gone = [weakref.ref(copied)]
    train(copied, torch.optim.SGD(copied.parameters(), lr=0.1), 2)
    gone.append(weakref.ref(copied.linear.weight))
    del copied
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    assert len(moved._models) == len(moved._optimizers) == 1 and len(tags.held) == 7, "nor what is known of it"
    train(model, optimizer, 1)
    assert companion.guard.on


def test_an_optimizer_that_cant_be_read_harms_nobody(companion, capfd):
    class Broken(torch.optim.SGD):
        broken = False

        @property
        def state(self):
            if self.broken:
                raise RuntimeError("no state")
            return self.__dict__["state"]

        @state.setter
        def state(self, value):
            self.__dict__["state"] = value

    model = Model()
    optimizer = Broken(model.parameters(), lr=0.1)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
    optimizer.broken = True
    capfd.readouterr()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
    assert companion.guard.on and "moved can't be seen (RuntimeError: no state)" in capfd.readouterr().err


def test_looking_takes_microseconds_a_step(companion):
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(500)))
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, 4)
    begin = time.process_time_ns()
    for _ in range(1000):
        moved.step_begins()
        moved.step_ends()
    cost = (time.process_time_ns() - begin) / 1000
    print(f"{cost:.0f} ns a step")
    assert cost < 200_000
