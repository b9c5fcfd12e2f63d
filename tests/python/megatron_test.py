"""Megatron-FSDP (PyPI's megatron-fsdp), where it is installed: rank 0 of two that only pretend, without a GPU.

Its streams and events are stand-ins here, so that what is seen is which memory is tagged, and when.
"""

import contextlib
import importlib.util
import warnings

import pytest
import torch
from conftest import sharded_models
from torch import nn

pytestmark = pytest.mark.skipif(importlib.util.find_spec("megatron_fsdp") is None, reason="megatron-fsdp is not installed")


class Stream:
    device = torch.device("cpu")

    def __init__(self, *args, **kwargs):
        pass

    def record_event(self, event=None):
        return Stream()

    def _nothing(self, *args):
        return True

    wait = record = query = synchronize = wait_stream = wait_event = _nothing


@pytest.fixture
def two_ranks(monkeypatch, two_ranks):
    for name, stand_in in {
        "Stream": Stream, "Event": Stream, "current_stream": Stream, "stream": lambda stream: contextlib.nullcontext(),
        "current_device": lambda: 0, "synchronize": Stream()._nothing, "mem_get_info": lambda *args: (1, 1),
        "memory_allocated": lambda *args: 0,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        sharded_models.append(self)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def sharded(dtype=torch.float32, **options):
    from megatron_fsdp import fully_shard_model, fully_shard_optimizer
    from torch.distributed.device_mesh import init_device_mesh

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
        model = fully_shard_model(Model().to(dtype), device_mesh=mesh, dp_shard_dim="dp", tp_dim="tp", fsdp_unit_modules=[Block],
                                  device=torch.device("cpu"), **options)
        return model, fully_shard_optimizer(torch.optim.Adam(model.parameters()))


def train(model, optimizer, iterations=1, dtype=torch.float32):
    for _ in range(iterations):
        optimizer.zero_grad()
        model(torch.randn(3, 16, dtype=dtype)).sum().backward()
        optimizer.step()


def tagged(calls, *categories):
    return [call for call in calls.named("tag") if call[3] in categories]


def address(tensor):
    return tensor.untyped_storage().data_ptr()


def test_what_stays_has_the_category_of_its_buffer_and_its_unit(companion, two_ranks):
    model, optimizer = sharded()
    train(model, optimizer)
    last = {call[2]: call for call in companion.calls.named("tag")}
    names = {call[1]: call[3] for call in companion.calls.named("module")}
    groups = model.param_and_grad_buffer.parameter_groups
    assert len(groups) == 3
    for group in groups:
        for attribute, category in (("model_weight_buffer", "sharded_param"), ("main_weight_buffer", "sharded_param"),
                                    ("main_grad_buffer", "sharded_grad")):
            assert last[address(getattr(group, attribute).data)][3] == category, attribute
    owners = {names[last[address(group.model_weight_buffer.data)][4]] for group in groups}
    assert owners == {"module.blocks.0", "module.blocks.1", "module.head"}
    known = companion.calls.index(companion.calls.named("module")[0])  # before, fully_shard_optimizer makes a step of its own
    assert not tagged(type(companion.calls)(companion.calls[known:]), "param", "gradient") and companion.guard.on


def test_a_bucket_is_tagged_where_it_is_allocated_and_not_where_it_is_only_used(companion, two_ranks):
    model, optimizer = sharded()
    train(model, optimizer)
    companion.calls.clear()
    train(model, optimizer)
    whole = [call[5].rsplit(".", 1)[-1] for call in tagged(companion.calls, "unsharded_param")]
    # Gathered in forward and again in backward, but for the part that is needed last and first.
    assert set(whole) == {"model_weight_buffer"} and 3 <= len(whole) <= 6
    gradients = [call[5] for call in tagged(companion.calls, "unsharded_grad")]
    assert sorted(gradients) == ["module.blocks.0.main_grad_buffer", "module.blocks.1.main_grad_buffer",
                                 "module.head.main_grad_buffer"]


def test_copies_of_gradients_for_the_optimizer_are_tagged_in_every_step(companion, two_ranks):
    model, optimizer = sharded(torch.bfloat16)
    train(model, optimizer, iterations=4, dtype=torch.bfloat16)  # more than the steps in which an optimizer's tensors are tagged anyway
    companion.calls.clear()
    train(model, optimizer, dtype=torch.bfloat16)
    whole = model.param_and_grad_buffer
    made = {address(parameter.grad._local_tensor) for _, parameter in whole.optimizer_named_parameters if parameter.grad is not None}
    buffers = {address(group.main_grad_buffer.data) for group in whole.parameter_groups}
    assert made and not made & buffers
    assert made <= {call[2] for call in tagged(companion.calls, "sharded_grad")} and companion.guard.on


def test_an_iteration_is_a_step(companion, two_ranks):
    model, optimizer = sharded()
    train(model, optimizer, iterations=4)
    steps = [text for text in companion.calls.ranges() if text.startswith("start step")]
    assert steps == [f"start step step {number}" for number in range(4)]


def test_state_that_was_there_before_the_models_first_call_gets_its_names_in_the_next_step(companion, two_ranks):
    model, optimizer = sharded()
    assert {call[5] for call in tagged(companion.calls, "optstate")} == {"step", "exp_avg", "exp_avg_sq"}
    train(model, optimizer, iterations=2)
    state = {call[5] for call in tagged(companion.calls, "optstate")}
    assert {"module.blocks.0.down.weight.exp_avg", "module.head.weight.exp_avg"} <= state and companion.guard.on
    companion.calls.clear()
    train(model, optimizer, iterations=2)
    assert not tagged(companion.calls, "optstate")


def test_results_are_the_same_with_and_without(companion, two_ranks):
    from shardledger._companion import guard

    def weights():
        torch.manual_seed(0)
        model, optimizer = sharded()
        train(model, optimizer, iterations=3)
        return [group.main_weight_buffer.data.clone() for group in model.param_and_grad_buffer.parameter_groups]

    recorded = weights()
    guard.on = False
    assert all(torch.equal(a, b) for a, b in zip(recorded, weights()))
