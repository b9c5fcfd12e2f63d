"""Modules, tensors, optimizers and tags that can't be read cost themselves: all else goes on being recorded."""

import os
import subprocess
import sys
import threading

import pytest
import shardledger
import torch
from conftest import LIBRARIES, PLUGIN, read_log
from shardledger.kinds import KIND
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


class Unhashable(Block):
    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("eq")


class Incomparable(Block):
    __hash__ = nn.Module.__hash__

    def __eq__(self, other):
        raise RuntimeError("eq")


class Unwalkable(Block):
    def fail(self, *args, **kwargs):
        raise RuntimeError("walked")

    named_modules = modules = named_parameters = parameters = named_buffers = buffers = children = named_children = fail


class Untrue(Block):
    def fail(self, *args):
        raise RuntimeError("asked")

    __bool__ = __len__ = __iter__ = __str__ = __repr__ = __contains__ = fail


class Secretive(Block):
    def __getattr__(self, name):
        if name == "linear" or name.startswith("_"):
            return super().__getattr__(name)
        raise RuntimeError("no " + name)


class Slotted(Block):
    __slots__ = ("more",)


class Shadowing(Block):
    """Attributes where the companion could look for torch's."""

    def __init__(self):
        super().__init__()
        for name in ("_is_replica", "_local_tensor", "_get_fsdp_state", "module"):
            self.__dict__[name] = None


class Table(dict):
    def items(self):
        raise RuntimeError("no items")


def unreadable():
    block = Block()
    block._modules = Table(block._modules)
    return block


def train(model, parameters, steps=2, optimizer=torch.optim.SGD):
    optimizer = optimizer(parameters, lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def recorded(calls):
    return {call[2] for call in calls.named("push") if call[1] in (KIND["forward"], KIND["eval"])}


@pytest.fixture
def goes_on(companion):
    """After the test, a plain model is recorded as ever."""
    yield companion
    assert companion.guard.on
    companion.calls.clear()
    model = nn.Sequential(Block(), Block())
    train(model, model.parameters())
    assert [r for r in companion.calls.ranges() if r.startswith("+forward")][:5] == [
        "+forward Sequential", "+forward 0", "+forward 0.linear", "+forward 1", "+forward 1.linear"]
    assert companion.calls.named("tag")


@pytest.mark.parametrize("kind", [Unhashable, Incomparable, Unwalkable, Untrue, Secretive, Slotted, Shadowing])
def test_a_module_that_answers_nothing_is_read_past_its_own_methods(goes_on, kind):
    bad = kind()
    with torch.no_grad():
        bad(torch.ones(2, 4))
    assert recorded(goes_on.calls) == {kind.__name__, "linear"}
    goes_on.calls.clear()
    first, whole = Block(), nn.Sequential()
    whole._modules.update(a=first, b=bad)
    whole.forward = None
    del whole.__dict__["forward"]
    train(lambda x: nn.Sequential.forward(whole, x) if kind is Untrue else whole(x), [*first.parameters(), bad.linear.weight])
    names = recorded(goes_on.calls)
    assert kind is Untrue or {"Sequential", "a", "a.linear", "b", "b.linear"} <= names


def test_a_module_that_cannot_be_read_costs_itself(goes_on, capfd):
    first, bad = Block(), unreadable()
    model = nn.Sequential(first, bad)
    train(model, first.parameters())
    assert recorded(goes_on.calls) == {"Sequential", "0", "0.linear"}
    train(bad, first.parameters(), steps=1)
    tagged = {call[5] for call in goes_on.calls.named("tag") if call[3] == "param"}
    assert {"0.linear.weight", "0.linear.bias"} <= tagged
    assert capfd.readouterr().err.splitlines() == [
        "shardledger: a Block can't be read and is left out (RuntimeError: no items)"]


def test_names_of_any_kind_and_cycles_are_recorded(goes_on):
    model = nn.Sequential()
    for name in ("a\nb", "\x1b[31m", "\udcff", "x" * 5000, "", "a b", "a.b"):
        model._modules[name] = nn.Linear(4, 4)
    model._modules["a b"]._modules["up"] = model
    parameters = [layer.weight for layer in model._modules.values()]
    train(lambda x: nn.Sequential.__call__(model, x), parameters)
    assert len(recorded(goes_on.calls)) == 8


def test_what_modules_are_called_with_and_give_may_not_be_readable(goes_on):
    class Outputs(dict):
        def values(self):
            raise RuntimeError("no values")

    class Listed(list):
        def __iter__(self):
            raise RuntimeError("no items")

        def __bool__(self):
            raise RuntimeError("neither")

    class Pretender:
        @property
        def __class__(self):
            raise RuntimeError("no class")

    class Odd(Block):
        def forward(self, x, *others):
            return Outputs(x=super().forward(x)), Listed([x]), Pretender()

    model = Odd()
    for _ in range(2):
        model(torch.ones(2, 4), Listed([1]), Outputs(), Pretender())
    assert recorded(goes_on.calls) == {"Odd", "linear"}


def test_an_optimizer_that_cannot_be_read_costs_its_tags(goes_on, capfd):
    class Odd(torch.optim.SGD):
        __hash__ = None
        broken = False

        def __eq__(self, other):
            raise RuntimeError("eq")

        @property
        def param_groups(self):
            if sys._getframe(1).f_globals["__name__"].startswith("shardledger"):
                raise RuntimeError("no groups")
            return self.groups

        @param_groups.setter
        def param_groups(self, groups):
            self.groups = groups

    model = Block()
    train(model, model.parameters(), optimizer=Odd)
    assert "+optimizer_step Odd" in goes_on.calls.ranges()
    assert [call[2] for call in goes_on.calls.named("start") if "step" in call[2]] == ["step 0", "step 1"]
    assert capfd.readouterr().err.splitlines() == [
        "shardledger: what a Odd holds can't be read and has no tags (RuntimeError: no groups)"]


class Nameless:
    def __str__(self):
        raise RuntimeError("no\nname")


@pytest.mark.parametrize("arguments", [(None, "kind"), (3, "kind"), ("text", "kind"), (object(), "kind"), (Nameless(), "kind"),
                                       (torch.ones(1).to_sparse(), "kind"), (torch.ones(1, device="meta"), "kind")])
def test_a_tag_of_what_is_no_tensor_on_a_device_does_nothing(goes_on, arguments, capfd):
    shardledger.tag(*arguments)
    assert not goes_on.calls.named("tag") and capfd.readouterr().err == ""


def test_a_bad_tag_costs_that_call_and_is_said_once(goes_on, capfd):
    tensor = torch.ones(2)
    for _ in range(3):
        shardledger.tag(tensor, Nameless())
        shardledger.tag(tensor, "kind", Nameless())
    shardledger.tag(tensor, "kind\udcff", "n" * 100_000)
    assert capfd.readouterr().err.splitlines() == ["shardledger: a tag was not set (RuntimeError: no name)"]
    assert len(goes_on.calls.named("tag")) == 1


RELOADS = """
import importlib
import pkgutil
import sys
import shardledger
assert shardledger.attach()
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()

step()
step()
for name in [module.name for module in pkgutil.walk_packages(shardledger.__path__, "shardledger.")] + ["shardledger"]:
    if name in sys.modules:
        importlib.reload(sys.modules[name])
        assert shardledger.attach()
        step()
for name in [name for name in sys.modules if name.split(".")[0] == "shardledger"]:
    del sys.modules[name]
step()
import shardledger
assert shardledger.attach()
step()
shardledger.step()
"""


def test_reloading_the_package_or_importing_it_anew_changes_nothing(tmp_path):
    """As %autoreload does it, after each module."""
    environment = dict(os.environ, NVTX_INJECTION64_PATH=PLUGIN, SHARDLEDGER_DIR=str(tmp_path), SHARDLEDGER_TORCH="off",
                       PYTHONPATH=os.path.join(LIBRARIES, "python"))
    done = subprocess.run([sys.executable, "-c", RELOADS], env=environment, stderr=subprocess.PIPE, encoding="utf-8")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    (log,) = (read_log(entry.path) for entry in os.scandir(tmp_path))
    numbers = [event["value"] for event in log.of("range_start") if event["name"].startswith("step ")]
    assert numbers == list(range(len(numbers))) and len(numbers) > 15
    names = [event["name"] for event in log.of("range_push") if event["name"] in ("Sequential", "0", "1")]
    assert names == ["Sequential", "0", "1"] * len(numbers)


def test_steps_of_many_threads_have_a_number_each(goes_on):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=lambda: [shardledger.step() for _ in range(200)]) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    numbers = [call[3] for call in goes_on.calls.named("start")]
    ended = [call[1] for call in goes_on.calls.named("end")]
    assert sorted(numbers) == list(range(len(numbers))) and len(set(ended)) == len(ended)
    from shardledger._companion.hooks import steps

    steps._manual = False
