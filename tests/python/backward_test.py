"""Ranges of backwards, and that watching them keeps no memory alive and changes no gradient."""

import gc
import weakref

import pytest
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def backward_ranges(calls):
    ranges = calls.ranges()
    return ranges[ranges.index("+backward backward"):]


def test_modules_backwards_start_at_their_outputs_gradient_and_end_at_their_inputs(companion):
    Model()(torch.randn(2, 4).requires_grad_() * 1).sum().backward()
    assert backward_ranges(companion.calls) == [
        "+backward backward", "start backward second", "start backward Model", "end backward second",
        "start backward first", "end backward first", "end backward Model", "-"]


def test_without_a_differentiable_input_a_module_ends_with_the_whole_backward(companion):
    Model()(torch.randn(2, 4)).sum().backward()
    ranges = backward_ranges(companion.calls)
    assert ranges[-1] == "-"
    assert set(ranges[-3:-1]) == {"end backward first", "end backward Model"}


def test_a_backward_that_raises_closes_its_ranges(companion):
    def fail(grad):
        raise ValueError("user's")

    x = torch.randn(2, 4).requires_grad_() * 1
    x.register_hook(fail)
    with pytest.raises(ValueError, match="user's"):
        Model()(x).sum().backward()
    ranges = backward_ranges(companion.calls)
    assert ranges.count("-") == 1
    assert sum(r.startswith("start") for r in ranges) == sum(r.startswith("end") for r in ranges) == 3


def test_a_second_backward_of_a_retained_graph_has_ranges_of_its_own(companion):
    loss = Model()(torch.randn(2, 4).requires_grad_() * 1).sum()
    loss.backward(retain_graph=True)
    once = backward_ranges(companion.calls)
    companion.calls.clear()
    loss.backward()
    assert companion.calls.ranges() == once


def test_autograd_grad_is_a_backward_and_keeps_its_signature(companion):
    import inspect

    x = torch.randn(2, 4, requires_grad=True)
    y = Model()(x * 1).sum()
    (grad,) = torch.autograd.grad(y, x)
    assert grad.shape == x.shape
    assert "+backward backward" in companion.calls.ranges()
    assert "grad_outputs" in inspect.signature(torch.autograd.grad).parameters
    assert "retain_graph" in inspect.signature(torch.autograd.backward).parameters


def test_gradients_are_the_same_to_the_bit(companion):
    model, x = Model(), torch.randn(2, 4)
    model(x).sum().backward()
    watched = [p.grad.clone() for p in model.parameters()]
    companion.guard.on = False
    model.zero_grad()
    model(x).sum().backward()
    companion.guard.on = True
    assert all(torch.equal(p.grad, w) for p, w in zip(model.parameters(), watched))


def test_watching_keeps_no_tensor_alive(companion):
    freed = []

    class Probe(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            y = self.linear(x)
            weakref.finalize(y, freed.append, "activation")
            return y * 2

    gc.collect()
    gc.disable()
    try:
        model = Probe()
        out = model(torch.randn(2, 4).requires_grad_() * 1)
        weakref.finalize(out, freed.append, "output")
        assert freed == ["activation"]
        out.sum().backward()
        del out
        assert freed == ["activation", "output"]
    finally:
        gc.enable()


def test_leaf_inputs_do_not_collect_hooks(companion):
    model, x = Model(), torch.randn(2, 4, requires_grad=True)
    for _ in range(3):
        model(x).sum().backward()
    assert not x._backward_hooks
