"""Ranges of loading, saving and generating, and that their wrappers harm nobody."""

import copy
import inspect
import io
import pickle
import sys
import types

import pytest
import torch
from torch import nn

from shardledger._companion import imports
from shardledger._companion.hooks import outside


def ranges(calls):
    return [text for text in calls.ranges() if text == "-" or text.startswith(("+load", "+save", "+generate"))]


def test_loading_and_saving_have_ranges(companion):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file))
    optimizer.load_state_dict(optimizer.state_dict())
    assert ranges(companion.calls) == ["+save Linear.state_dict", "-", "+save torch.save", "-", "+load torch.load", "-",
                                       "+load Linear.load_state_dict", "-", "+load SGD.load_state_dict", "-"]
    assert companion.guard.on


def test_of_calls_within_each_other_the_outermost_has_the_range(companion):
    class Own(nn.Sequential):
        def state_dict(self, *args, **kwargs):
            return super().state_dict(*args, **kwargs)

        def load_state_dict(self, state, **options):
            return super().load_state_dict(self.state_dict() and state, **options)

    model = Own(nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2))
    state = model.state_dict()
    assert list(state) == ["0.0.weight", "0.0.bias", "1.weight", "1.bias"]
    assert ranges(companion.calls) == ["+save Own.state_dict", "-"]


def test_a_call_that_raises_closes_its_range(companion):
    model = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({})
    with pytest.raises(FileNotFoundError):
        torch.load("/nowhere/at/all")
    assert ranges(companion.calls) == ["+load Linear.load_state_dict", "-", "+load torch.load", "-"]


def test_a_failure_of_ours_is_not_the_jobs(companion, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("broken on purpose")

    for native in ("push", "pop"):
        companion.guard.on = True
        with monkeypatch.context() as patch:
            patch.setattr(companion.native, native, fail)
            assert set(nn.Linear(2, 2).state_dict()) == {"weight", "bias"}
        assert not companion.guard.on and not outside._thread.is_open


@pytest.mark.parametrize("find", [lambda: torch.save, lambda: torch.load, lambda: nn.Module.state_dict,
                                  lambda: nn.Module.load_state_dict])
def test_the_functions_look_and_pickle_as_they_did(companion, find):
    function = find()
    assert pickle.loads(pickle.dumps(function)) is function and copy.copy(function) is function
    assert function.__module__.startswith("torch.") and function.__doc__
    assert inspect.signature(function) == inspect.signature(function.__wrapped__)
    assert torch.serialization.save is torch.save


def test_scripted_and_pickled_models_are_saved_and_loaded(companion):
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    scripted.load_state_dict(scripted.state_dict())
    model = pickle.loads(pickle.dumps(nn.Linear(2, 2)))
    model.load_state_dict(copy.deepcopy(model).state_dict())
    assert companion.guard.on


@pytest.mark.parametrize("function", ["state_dict", "load_state_dict"])
def test_where_they_are_compiled_the_graphs_are_those_without_the_companion(companion, monkeypatch, function):
    def graphs():
        torch._dynamo.reset()
        model, compiled = nn.Linear(2, 2), []

        def backend(graph, inputs):
            compiled.append([node.name for node in graph.graph.nodes])
            return graph.forward

        state = {name: torch.ones_like(parameter) for name, parameter in model.named_parameters()}

        @torch.compile(backend=backend)
        def total(x):
            x = x * 2
            if function == "load_state_dict":
                model.load_state_dict(state)
            else:
                x = x + sum(value.sum() for value in model.state_dict().values())
            return model(x + 1)

        for _ in range(2):
            total(torch.zeros(1, 2))
        return compiled

    ours = graphs()
    monkeypatch.setattr(nn.Module, function, getattr(nn.Module, function).__wrapped__)
    assert ours == graphs() and companion.guard.on


def test_distributed_checkpoints_helpers(companion):
    from torch.distributed.checkpoint import state_dict

    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state_dict.set_model_state_dict(model, state_dict.get_model_state_dict(model))
    state_dict.get_optimizer_state_dict(model, optimizer)
    pushed = [text for text in ranges(companion.calls) if text != "-"]
    assert pushed == ["+save get_model_state_dict", "+load set_model_state_dict", "+save get_optimizer_state_dict"]


@pytest.fixture
def transformers(monkeypatch, tmp_path):
    """A package of the name, with the part that matters."""
    package = tmp_path / "transformers" / "generation"
    package.mkdir(parents=True)
    (tmp_path / "transformers" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("from .utils import GenerationMixin\n")
    (package / "utils.py").write_text('''
import torch


class GenerationMixin:
    @torch.no_grad()
    def generate(self, inputs, steps=2):
        for _ in range(steps):
            inputs = self(inputs)
        return inputs
''')
    for name in list(sys.modules):
        if name.split(".")[0] == "transformers":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in list(sys.modules):
        if name.split(".")[0] == "transformers":
            del sys.modules[name]


@pytest.mark.parametrize("imported", ["before", "after"])
def test_generating_has_a_range_with_evaluations_inside(companion, transformers, imported):
    if imported == "before":
        import transformers.generation.utils
    outside.install()
    from transformers.generation import GenerationMixin

    class Model(GenerationMixin, nn.Linear):
        pass

    model = Model(2, 2)  # in training mode, as in reinforcement learning
    for _ in range(2):
        companion.calls.clear()
        model.generate(torch.ones(1, 2))
        assert companion.calls.ranges() == ["+generate Model.generate", "+eval Model", "-", "+eval Model", "-", "-"]
    assert companion.guard.on


def test_a_library_that_has_it_no_more_is_left_out(companion, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "transformers.generation.utils", types.ModuleType("transformers.generation.utils"))
    outside.install()
    assert "what transformers.generation.utils does has no ranges" in capfd.readouterr().err
    assert companion.guard.on


def test_a_module_that_raises_while_it_is_imported_is_waited_for_still(companion, monkeypatch, tmp_path):
    module = tmp_path / "shardledger_test_module.py"
    module.write_text("raise RuntimeError('not yet')")
    monkeypatch.syspath_prepend(str(tmp_path))
    called = []
    imports.when_imported(module.stem, lambda: called.append(sys.modules[module.stem].value))
    with pytest.raises(RuntimeError, match="not yet"):
        __import__(module.stem)
    module.write_text("value = 1  # and more, so that the size differs")
    __import__(module.stem)
    assert called == [1] and module.stem not in imports._waiting
