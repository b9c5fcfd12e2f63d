"""What is told of parameters, units of FSDP2 and optimizers' groups."""

import pytest
import torch
from torch import nn

FLOAT = "float32"


def parameters(calls):
    return {call[5]: call[1:] for call in calls.named("parameter")}


def test_each_parameter_is_told_once_with_its_shape(companion):
    model = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5))
    model[1].bias.requires_grad_(False)
    for _ in range(3):
        model(torch.ones(2, 3)).sum().backward()
    assert parameters(companion.calls) == {
        "0.weight": (1, 2, 0, 0, "0.weight", FLOAT, "5x3", "5x3", "", 3),
        "0.bias": (2, 2, 0, 0, "0.bias", FLOAT, "5", "5", "", 3),
        "1.weight": (3, 3, 0, 0, "1.weight", FLOAT, "5", "5", "", 3),
        "1.bias": (4, 3, 0, 0, "1.bias", FLOAT, "5", "5", "", 2),  # not trained
    }
    assert len(companion.calls.named("parameter")) == 4


def test_tied_parameters_are_one(companion):
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    model(torch.ones(2, 4))
    assert list(parameters(companion.calls)) == ["0.weight"]


def test_an_optimizers_groups_are_told_with_the_numbers_of_their_parameters(companion):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    alone = nn.Parameter(torch.ones(2))
    groups = [{"params": [model[0].weight, *model[1].parameters(), alone]}, {"params": [model[2].bias], "foreach": False}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    for _ in range(5):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    told = [(call[1:4], call[5:]) for call in companion.calls.named("optimizer")]
    assert told == [((1, 0, "SGD"), ("1,3-4,?", 4)), ((1, 1, "SGD"), ("6", 1))]
    settings = [call[4] for call in companion.calls.named("optimizer")]
    assert "foreach=None" in settings[0] and "momentum=0.9" in settings[0]
    assert "foreach=False" in settings[1]


def test_a_group_that_is_added_is_told_when_it_steps(companion):
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    optimizer = torch.optim.SGD([model[0].weight], lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.add_param_group({"params": [model[1].weight]})
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert [call[1:3] for call in companion.calls.named("optimizer")] == [(1, 0), (1, 0), (1, 1)]


def test_a_parameter_in_name_only_harms_nobody(companion):
    model = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 3))
    model(torch.ones(2, 4))
    assert "1.weight" in parameters(companion.calls)


@pytest.fixture(scope="module")
def fake_group():
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    torch.distributed.init_process_group("fake", store=fake.FakeStore(), rank=1, world_size=4)
    yield
    torch.distributed.destroy_process_group()


def sharded(**root):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    mesh = torch.distributed.init_device_mesh("cpu", (4,))
    model = nn.Sequential(nn.Linear(6, 10), nn.Linear(10, 2), nn.Linear(2, 2))
    policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    fsdp.fully_shard(model[0], mesh=mesh)
    fsdp.fully_shard(model[1], mesh=mesh, reshard_after_forward=2, mp_policy=policy)
    fsdp.fully_shard(model, mesh=mesh, **root)
    return model


def test_units_of_fsdp2_are_told_with_how_they_are_sharded(companion, fake_group):
    model = sharded()
    model(torch.ones(2, 6))
    units = {call[1]: call[2:] for call in companion.calls.named("fsdp_unit")}
    assert units == {
        1: (4, 1, 1, "", "", 1, 0),  # the root is not resharded
        2: (4, 1, 4, "", "", 1, 0),
        3: (4, 1, 2, "bfloat16", "float32", 1, 0),
    }
    told = parameters(companion.calls)
    assert told["0.weight"][1:9] == (2, 2, 0, "0.weight", FLOAT, "10x6", "3x6", "S0/4")
    assert told["0.bias"][2:4] == (2, 1)  # the second of its unit
    assert told["2.weight"][2:8] == (1, 0, "2.weight", FLOAT, "2x2", "1x2")


def test_a_root_that_reshards_says_so(companion, fake_group):
    sharded(reshard_after_forward=True)(torch.ones(2, 6))
    assert companion.calls.named("fsdp_unit")[0][4] == 4
