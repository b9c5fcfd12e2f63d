"""FSDP1's whole gradients, in a process group that only pretends: rank 0 of two, whose collectives move nothing."""

import warnings

import pytest
import torch
from conftest import sharded_models
from torch import nn

from shardledger._companion.tagging import refusals

FSDP = pytest.importorskip("torch.distributed.fsdp").FullyShardedDataParallel
ShardingStrategy = pytest.importorskip("torch.distributed.fsdp").ShardingStrategy


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        sharded_models.append(self)
        self.block = nn.Linear(8, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.block(x))


def sharded(**options):
    model = Model()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.block = FSDP(model.block, device_id=torch.device("cpu"), **options)
        return FSDP(model, device_id=torch.device("cpu"), **options)


def train(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(torch.ones(2, 8)).sum().backward()


def whole(calls):
    return [(call[5], call[4]) for call in calls.named("tag") if call[3] == "unsharded_grad"]


@pytest.mark.parametrize("options", [{}, {"use_orig_params": True}, {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}])
def test_a_units_whole_gradient_is_tagged_in_each_backward_before_it_is_reduced(options, companion, two_ranks):
    model = sharded(**options)
    train(model)
    ids = {call[3]: call[1] for call in companion.calls.named("module")}
    assert sorted(whole(companion.calls)) == [("_flat_param", ids[""]), ("block._flat_param", ids["block"])]
    companion.calls.clear()
    train(model)
    assert len(whole(companion.calls)) == 2 and companion.guard.on


def test_the_address_is_that_of_what_autograd_made(companion, two_ranks):
    model, seen = sharded(), []
    for handle in (model._handle, model.block._handle):
        handle.flat_param.register_hook(lambda grad: seen.append(grad.untyped_storage().data_ptr()))
    train(model)
    tagged = [call[2] for call in companion.calls.named("tag") if call[3] == "unsharded_grad"]
    assert sorted(tagged) == sorted(seen) and len(seen) == 2


def test_what_accumulates_without_a_reduction_is_whole_too(companion, two_ranks):
    model = sharded()
    with model.no_sync():
        train(model)
    kept = {handle.flat_param.grad.untyped_storage().data_ptr() for handle in (model._handle, model.block._handle)}
    assert {call[2] for call in companion.calls.named("tag") if call[3] == "unsharded_grad"} == kept


def test_gradients_that_are_there_to_stay_are_left_to_the_optimizers_step(companion, two_ranks):
    train(sharded(sharding_strategy=ShardingStrategy.NO_SHARD))
    assert whole(companion.calls) == [] and companion.guard.on


def test_another_versions_names_do_no_harm(companion, two_ranks):
    from torch.distributed.fsdp import _runtime_utils

    hook = _runtime_utils._post_backward_hook
    assert hasattr(hook, "_is_shardledgers")
    with pytest.raises(Exception):  # torch's own of a handle that is none
        hook(object(), object())
    assert companion.guard.on and whole(companion.calls) == []


def test_fsdp2s_whole_gradients_are_tagged_where_memory_runs_out(companion, two_ranks, monkeypatch):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    monkeypatch.setattr(refusals, "_count", 0)
    model, mesh = Model(), init_device_mesh("cpu", (2,))
    fully_shard(model.block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.set_requires_gradient_sync(False)
    train(model)
    companion.calls.clear()
    refusals.refused(0, 1)
    ids = {call[1]: call[3] for call in companion.calls.named("module")}
    assert {name for name, _ in whole(companion.calls)} == {"block.weight", "block.bias", "head.weight", "head.bias"}
    assert companion.guard.on and not ids
