"""Ranges of forwards: which modules have them, and that no way out of a forward leaves one open."""

import copy
import functools
import io
import sys
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


@pytest.fixture
def companion(either_way):
    return either_way


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.fails = None

    def forward(self, x):
        if self.fails:
            raise self.fails
        return torch.relu(self.linear(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block()
        self.second = Block()

    def forward(self, x, scale=None):
        x = self.second(self.first(x))
        return x if scale is None else x * scale


def x():
    return torch.randn(2, 4)


WHOLE = ["start step step 0", "+forward Model", "+forward first", "+forward first.linear", "-", "-", "+forward second",
         "+forward second.linear", "-", "-", "-"]


def test_without_fsdp_modules_to_depth_two_have_ranges(companion):
    Model()(x())
    assert companion.calls.ranges() == WHOLE


def test_at_a_second_call_the_bridge_asks_python_for_the_root_alone(companion, monkeypatch, request):
    model, asked = Model(), []
    begin = companion.forward._begin
    monkeypatch.setattr(companion.forward, "_begin", lambda module, stack: asked.append(module) or begin(module, stack))
    with torch.no_grad():
        model(x())
        first = len(asked)
        model(x())
    assert first == 5 and companion.calls.ranges()[:10] == companion.calls.ranges()[10:]
    assert asked[first:] == ([model] if "with the bridge" in request.node.name else asked[:first])


@pytest.mark.parametrize("selection, names", [
    ("0", {"Model"}), ("1", {"Model", "first", "second"}),
    ("all", {"Model", "first", "second", "first.linear", "second.linear"})])
def test_the_selection_can_be_a_depth_or_all(companion, monkeypatch, selection, names):
    monkeypatch.setenv("SHARDLEDGER_MODULES", selection)
    Model()(x())
    assert {call[2] for call in companion.calls.named("push")} == names


def test_no_module_and_no_table_of_torchs_has_a_hook(companion):
    model = Model()
    inside = []
    model.first.linear.register_forward_hook(lambda *_: inside.append(len(torch.nn.modules.module._global_forward_pre_hooks)))
    for _ in range(2):
        model(x())
    assert inside == [0, 0]
    hooks = [module for module in model.modules() if module._forward_pre_hooks or module._forward_hooks]
    assert hooks == [model.first.linear], "the test's own"


def test_what_a_roots_own_hooks_make_of_its_inputs_is_tagged(companion):
    """As FSDP, which brings them to the device."""
    model, brought = Model(), torch.ones(2, 4)
    model.register_forward_pre_hook(lambda module, args: (brought,))
    for _ in range(2):
        companion.calls.clear()
        model(x())
        tagged = {call[2] for call in companion.calls.named("tag") if call[3] == "input"}
        assert tagged == {brought.untyped_storage().data_ptr()}
        assert len(model._forward_pre_hooks) == 1 and not model._forward_pre_hooks_with_kwargs


def test_an_exception_in_a_forward_closes_all_ranges(companion):
    model = Model()
    for _ in range(2):  # at the first call, when the root's own hooks are new, and at a later one
        model.second.fails = ValueError("user's")
        companion.calls.clear()
        with pytest.raises(ValueError, match="user's"):
            model(x())
        ranges = companion.calls.ranges()
        assert sum(r.startswith("+") for r in ranges) == ranges.count("-") == 4
        model.second.fails = None
        companion.calls.clear()
        model(x())
        assert companion.calls.ranges() == WHOLE[1:]


def test_an_exception_in_the_users_own_pre_hook_leaves_the_companion_in_order(companion):
    def fail(module, args):
        raise RuntimeError("hook")

    model = Model()
    handle = model.register_forward_pre_hook(fail, prepend=True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="hook"):
            model(x())
    handle.remove()
    companion.calls.clear()
    model(x())
    assert companion.calls.ranges() == WHOLE[1:]


def test_an_interrupt_closes_all_ranges(companion):
    model = Model()
    model(x())
    model.first.fails = KeyboardInterrupt()
    companion.calls.clear()
    with pytest.raises(KeyboardInterrupt):
        model(x())
    assert companion.calls.ranges() == ["+forward Model", "+forward first", "-", "-"]
    model.first.fails = None
    companion.calls.clear()
    model(x())
    assert companion.calls.ranges() == WHOLE[1:]


def test_an_interrupt_of_the_companion_leaves_ranges_that_the_next_optimizer_step_closes(companion, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with monkeypatch.context() as patch:
        patch.setattr(companion.native, "pop", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(x())
    companion.calls.clear()
    optimizer.step()
    assert companion.calls.ranges()[:5] == ["-", "-", "-", "+optimizer_step SGD", "-"]


def test_calls_nest_as_deep_as_without(companion):
    """A tree of modules that uses up Python's stack is to fit on it still."""

    class Deep(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    class Depth(nn.Module):
        def forward(self, x):
            depth, frame = 0, sys._getframe()
            while frame is not None:
                depth, frame = depth + 1, frame.f_back
            depths.append(depth)
            return x

    depths = []
    model = nn.Sequential(Deep(Deep(Deep(Deep(nn.Sequential(Depth(), nn.Linear(4, 4)))))))
    for on in (True, True, False):
        companion.guard.on = on
        model(x())
    companion.guard.on = True
    assert depths[0] == depths[2] and depths[1] == depths[2]


def test_a_module_that_calls_itself_has_one_range(companion):
    class Recursive(Block):
        def forward(self, x, depth=2):
            return self(super().forward(x), depth - 1) if depth else x

    Recursive()(x())
    assert companion.calls.ranges()[1:] == ["+forward Recursive", "+forward linear", "-", "+forward linear", "-", "-"]


def test_what_a_wrapper_wraps_has_its_range_when_it_is_called_itself(companion):
    """As in model.module(x), to evaluate what DistributedDataParallel trains."""
    model = Model()
    wrapped = torch.compile(model, backend="eager")
    wrapped(x())
    companion.calls.clear()
    model(x())
    assert companion.calls.ranges() == WHOLE[1:]


def test_replicas_of_data_parallel_are_the_module_that_they_replicate(companion):
    model = Model()
    model(x())
    replica = model._replicate_for_data_parallel()
    companion.calls.clear()
    replica(x())
    assert [r for r in companion.calls.ranges() if r.startswith("+")][0] == "+forward Model"
    assert not companion.calls.named("module")


def test_evaluation_is_a_kind_of_its_own_and_begins_no_step(companion):
    model = Model().eval()
    with torch.no_grad():
        model(x())
    assert companion.calls.ranges()[0] == "+eval Model"
    assert companion.calls.ranges()[1] == "+forward first"


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_in_training_mode_a_forward_without_gradients_is_an_evaluation_between_steps_only(companion, without):
    """As in reinforcement learning, which generates with the model that it trains; a GAN's fakes are part of a step."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def kind():
        with without():
            model(x())
        return [text for text in companion.calls.ranges() if text.endswith(" Model")][-1]

    assert kind() == "+eval Model", "before the first step"
    optimizer.zero_grad()
    assert kind() == "+forward Model"
    model(x()).sum().backward()
    assert kind() == "+forward Model"
    optimizer.step()
    assert kind() == "+eval Model", "between steps"
    optimizer.zero_grad()
    model.eval()
    assert kind() == "+eval Model", "in evaluation mode always"


def test_a_part_that_is_checkpointed_reentrantly_begins_a_step_and_is_recomputed(companion):
    """Its forward runs without gradients, inside of an autograd function."""
    model = Model()
    for _ in range(2):
        companion.calls.clear()
        hidden = checkpoint(functools.partial(model.first), x().requires_grad_(), use_reentrant=True)
        model.second(hidden).sum().backward()
        starts = [text for text in companion.calls.ranges() if text.startswith(("start", "+"))]
        assert starts[:1] == ["start step step 0"] or starts[0] == "+forward Block"
        assert [text for text in starts if text.startswith("+recompute")] == ["+recompute Block", "+recompute linear"]
        assert not [text for text in starts if text.startswith("+eval")]
    model.eval()
    companion.calls.clear()
    with torch.no_grad():
        checkpoint(model.first, x(), use_reentrant=True)
    assert companion.calls.ranges()[0] == "+eval Block"


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_module_is_recomputed_in_backward(companion, reentrant):
    class Checkpointed(Model):
        def forward(self, x):
            return self.second(checkpoint(self.first, x, use_reentrant=reentrant))

    model = Checkpointed()
    model(x().requires_grad_()).sum().backward()
    ranges = companion.calls.ranges()
    backward = ranges[ranges.index("+backward backward"):]
    assert [r for r in backward if r.startswith("+")] == [
        "+backward backward", "+recompute first", "+recompute first.linear"]
    assert ranges.count("+backward backward") == 1


def test_an_unselected_module_that_is_recomputed_gets_a_range_too(companion, monkeypatch):
    monkeypatch.setenv("SHARDLEDGER_MODULES", "0")

    class Checkpointed(Model):
        def forward(self, x):
            return self.second(checkpoint(self.first, x, use_reentrant=False))

    model = Checkpointed()
    for _ in range(2):
        companion.calls.clear()
        model(x().requires_grad_()).sum().backward()
        assert [r for r in companion.calls.ranges() if r.startswith("+")][-1] == "+recompute first"


def test_a_module_that_holds_nothing_is_no_model(companion):
    nn.MSELoss()(x(), x())
    assert companion.calls == []


def test_parts_called_from_outside_are_roots_of_their_own(companion):
    model = Model()
    model.second(model.first(x()))
    assert [call[3:5] for call in companion.calls.named("module")] == [
        ("", "Block"), ("linear", "Linear"), ("", "Block"), ("linear", "Linear")]


def test_a_part_that_was_a_root_takes_its_place_when_the_whole_is_called(companion):
    model = Model()
    model.first(x())
    companion.calls.clear()
    model(x())
    assert companion.calls.ranges() == WHOLE[1:]
    pushes = {call[2]: call[3] for call in companion.calls.named("push")}
    ids = {call[3]: call[1] for call in companion.calls.named("module")}
    assert pushes["first"] == ids["first"]


def test_a_module_without_forward_never_has_a_range(companion):
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block()])

        def forward(self, x):
            return self.blocks[0](x)

    model = Listed()
    model(x())
    assert "+forward blocks" not in companion.calls.ranges()
    assert "+forward blocks.0" in companion.calls.ranges()


def test_copies_and_pickles_of_a_model_leave_the_companion_behind(companion):
    model = Model()
    expected = model(torch.ones(1, 4))
    file = io.BytesIO()
    torch.save(model, file)
    assert b"shardledger" not in file.getvalue()
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for other in (copy.deepcopy(model), loaded):
        companion.calls.clear()
        assert torch.equal(other(torch.ones(1, 4)), expected)
        assert companion.calls.ranges() == WHOLE[1:]
        assert len(companion.calls.named("module")) == 5, "a copy is a model of its own"


def test_a_model_is_not_kept_alive(companion):
    import weakref

    model = Model()
    model(x())
    gone = weakref.ref(model)
    del model
    import gc

    gc.collect()
    assert gone() is None
    from shardledger._companion.hooks import modules

    assert not modules._known


def test_another_threads_forward_has_its_ranges_there(companion):
    model = Model()
    model(x())
    companion.calls.clear()
    thread = threading.Thread(target=lambda: model(x()))
    thread.start()
    thread.join()
    assert companion.calls.ranges() == WHOLE[1:]


def test_keyword_inputs_are_tagged_like_positional_ones(companion):
    model = Model()
    first, scale = x(), torch.ones(4)
    for _ in range(2):
        companion.calls.clear()
        model(first, scale=scale)
        tagged = {call[2] for call in companion.calls.named("tag") if call[3] == "input"}
        assert tagged == {first.untyped_storage().data_ptr(), scale.untyped_storage().data_ptr()}


@pytest.mark.parametrize("how", ["function", "module", "in place", "blocks", "blocks in place"])
def test_compiled_models_compute_the_same_without_a_warning_or_recompilation(companion, how):
    torch._dynamo.reset()
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    options = dict(backend=backend, fullgraph=True)
    model = Model()
    expected = copy.deepcopy(model)(torch.ones(2, 4))
    call = model
    if how == "function":
        call = torch.compile(lambda x: model(x), **options)
    elif how == "module":
        call = torch.compile(model, **options)
    elif how == "in place":
        model.compile(**options)
    elif how == "blocks":
        model.first, model.second = (torch.compile(block, **options) for block in (model.first, model.second))
    else:
        model.first.compile(**options)
        model.second.compile(**options)
    companion.calls.clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=r"Using `torch\.compile\(module\)`")
        graphs = None
        for _ in range(3):
            assert torch.equal(call(torch.ones(2, 4)), expected)
            graphs = graphs or len(compiled)
    assert len(compiled) == graphs, "compiled again"
    assert companion.guard.on
    pushed = [r for r in companion.calls.ranges() if r.startswith("+")]
    if how == "function":
        assert pushed == []  # nothing of a function that is compiled whole can be seen
    elif how in ("module", "in place"):
        assert pushed == 3 * ["+forward Model"]
    else:
        assert [name for name in pushed if "linear" not in name] == 3 * [
            "+forward Model", "+forward first", "+forward second"]


def test_a_compiled_module_inside_a_compiled_module_still_compiles(companion):
    torch._dynamo.reset()
    model = Model()
    model.first.compile(backend="eager", fullgraph=True)
    model(torch.ones(2, 4))
    expected = model(torch.ones(2, 4))
    call = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(call(torch.ones(2, 4)), expected)
