"""Where steps begin and end, for the loops that people write."""

import functools

import pytest
import torch
from steps_outline import Model, loss, outline, sgd
from torch import nn

import shardledger
from shardledger._companion.hooks import outside


def test_zero_grad_first(companion):
    model = Model()
    optimizer = sgd(model)
    for _ in range(2):
        optimizer.zero_grad()
        shardledger.mark("cleared")
        loss(model).backward()
        optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd opt1 ] [1 fwd bwd opt1 ]"
    marks = [i for i, call in enumerate(companion.calls) if call[0] == "mark"]
    begins = [i for i, call in enumerate(companion.calls) if call[0] == "start" and call[2].startswith("step")]
    assert begins[0] < marks[0] < begins[1] < marks[1], "a step begins with its zero_grad"


def test_zero_grad_last_with_an_evaluation_between(companion):
    model = Model()
    optimizer = sgd(model)
    for _ in range(2):
        loss(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            loss(model)
        model.train()
    assert outline(companion.calls) == "[0 fwd bwd opt1 ] eval [1 fwd bwd opt1 ] eval"


def test_gradient_accumulation(companion):
    model = Model()
    optimizer = sgd(model)
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(2):
            loss(model).backward()
        optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd fwd bwd opt1 ] [1 fwd bwd fwd bwd opt1 ]"


def test_two_optimizers_in_a_row_make_one_step(companion):
    model = Model()
    first, second = sgd(model.linear.weight), sgd(model.linear.bias)
    for _ in range(3):
        loss(model).backward()
        first.step()
        second.step()
    assert outline(companion.calls) == "[0 fwd bwd opt1 opt2 ] [1 fwd bwd opt1 opt2 ] [2 fwd bwd opt1 opt2 ]"


def test_two_optimizers_of_the_same_parameters_share_the_steps_after_the_first(companion):
    model = Model()
    first, second = sgd(model), sgd(model)
    for _ in range(3):
        loss(model).backward()
        first.step()
        second.step()
    assert outline(companion.calls) == "[0 fwd bwd opt1 ] opt2 [1 fwd bwd opt1 opt2 ] [2 fwd bwd opt1 opt2 ]"


class Gan:
    """A discriminator and a generator with an optimizer each, in loops as people write them."""

    def __init__(self):
        self.discriminator, self.generator = Model(), Model()
        self.of_discriminator, self.of_generator = sgd(self.discriminator), sgd(self.generator)

    def made_up(self):
        return self.generator(torch.ones(1, 2))

    def judge(self):
        return self.discriminator(self.made_up().detach()).sum()

    def fool(self):
        return self.discriminator(self.made_up()).sum()


ROUND = "fwd fwd bwd opt1 fwd fwd bwd opt2 ]"


@pytest.mark.parametrize("clears", ["first", "before both", "with the model", "last", "once before and last"])
def test_optimizers_in_turn_make_one_step_an_iteration_from_the_first_on(companion, clears):
    gan = Gan()
    turns = ((gan.of_discriminator, gan.judge), (gan.of_generator, gan.fool))
    if clears.startswith("once"):
        for optimizer, _ in turns:
            optimizer.zero_grad()
    for _ in range(4):
        for optimizer, value in turns:
            if clears == "first":
                optimizer.zero_grad()
            elif clears == "before both":
                for each, _ in turns:
                    each.zero_grad()
            elif clears == "with the model":
                gan.discriminator.zero_grad()
                gan.generator.zero_grad()
            value().backward()
            optimizer.step()
            if clears.endswith("last"):
                optimizer.zero_grad()
        shardledger.mark("end of the iteration")
    assert outline(companion.calls) == " ".join(f"[{i} {ROUND} |" for i in range(4))


def test_an_optimizer_that_steps_in_some_iterations_only(companion):
    """A critic that is trained more often: each iteration begins with its zero_grad."""
    gan = Gan()
    for i in range(6):
        gan.of_discriminator.zero_grad()
        gan.judge().backward()
        gan.of_discriminator.step()
        if i % 3 == 0:
            gan.of_generator.zero_grad()
            gan.fool().backward()
            gan.of_generator.step()
    alone = "fwd fwd bwd opt1 ]"
    assert outline(companion.calls) == (
        f"[0 {ROUND} [1 {alone} [2 {alone} [3 {ROUND} [4 {alone} [5 fwd fwd bwd opt1")


def test_an_optimizer_that_steps_and_clears_behind_some_steps_begins_none(companion):
    """As DiLoCo's outer one, which trains copies of the parameters."""
    model = Model()
    anchors = [nn.Parameter(parameter.detach().clone()) for parameter in model.parameters()]
    inner, outer = sgd(model), torch.optim.SGD(anchors, lr=0.7)
    for i in range(6):
        inner.zero_grad()
        loss(model).backward()
        inner.step()
        if i % 3 == 2:
            for anchor, parameter in zip(anchors, model.parameters()):
                anchor.grad = anchor.data - parameter.data
            outer.step()
            outer.zero_grad()
    alone = "fwd bwd opt1 ]"
    assert outline(companion.calls) == f"[0 {alone} [1 {alone} [2 {alone} opt2 [3 {alone} [4 {alone} [5 {alone} opt2"


@pytest.mark.parametrize("skipped", ["both", "first", "second"])
def test_iterations_in_which_a_scaler_skips_optimizers_in_turn(companion, skipped):
    gan = Gan()
    for i in range(4):
        for turn, (optimizer, value) in enumerate(((gan.of_discriminator, gan.judge), (gan.of_generator, gan.fool))):
            optimizer.zero_grad()
            value().backward()
            if i != 1 or skipped == ("second", "first")[turn]:
                optimizer.step()
    one = {"both": "fwd fwd bwd fwd fwd bwd ]", "first": "fwd fwd bwd fwd fwd bwd opt2 ]",
           "second": "fwd fwd bwd opt1 fwd fwd bwd ]"}[skipped]
    assert outline(companion.calls) == f"[0 {ROUND} [1 {one} [2 {ROUND} [3 {ROUND}"


def test_an_optimizer_that_is_never_used_is_waited_for_in_step_0_only(companion):
    gan = Gan()
    for _ in range(3):
        gan.of_discriminator.zero_grad()
        gan.judge().backward()
        gan.of_discriminator.step()
        shardledger.mark("end of the iteration")
    assert outline(companion.calls) == "[0 fwd fwd bwd opt1 | ] [1 fwd fwd bwd opt1 ] | [2 fwd fwd bwd opt1 ] |"


@pytest.mark.parametrize("clears_first", [True, False])
def test_an_optimizer_that_is_made_later_takes_part(companion, clears_first):
    model = Model()
    optimizers = [sgd(model.linear.weight)]
    for i in range(4):
        if i == 2:
            optimizers.append(sgd(model.linear.bias))
        if clears_first:
            for optimizer in optimizers:
                optimizer.zero_grad()
        loss(model).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd opt1 ] [1 fwd bwd opt1 ] [2 fwd bwd opt1 opt2 ] [3 fwd bwd opt1 opt2 ]"


def test_an_optimizer_in_turn_that_begins_to_train_later_takes_part_from_then_on(companion):
    critic, actor = Model(), Model()
    of_critic, of_actor = sgd(critic), sgd(actor)
    for i in range(4):
        for model, optimizer in ((critic, of_critic), (actor, of_actor))[: 2 if i > 1 else 1]:
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()
    one, two = "fwd bwd opt1 ]", "fwd bwd opt2 ]"
    assert outline(companion.calls) == f"[0 {one} [1 {one} [2 {one} [3 {two} [4 fwd bwd opt1 {two}"


def test_an_optimizer_that_wraps_another_one_is_not_waited_for(companion):
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            super().__init__(inner.param_groups, {})

        def step(self, closure=None):
            return self.inner.step(closure)

    model = Model()
    optimizer = Wrapper(sgd(model))
    for _ in range(3):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd opt1 opt2 ] [1 fwd bwd opt1 opt2 ] [2 fwd bwd opt1 opt2 ]"


@pytest.mark.parametrize("clears_first", [True, False])
def test_a_step_before_training_that_makes_the_state_begins_nothing(companion, clears_first):
    """As Megatron-FSDP and torch.distributed.checkpoint do."""
    model = Model()
    optimizer = sgd(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    for _ in range(3):
        if clears_first:
            optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
        if not clears_first:
            optimizer.zero_grad()
    assert outline(companion.calls) == "opt1 [0 fwd bwd opt1 ] [1 fwd bwd opt1 ] [2 fwd bwd opt1 ]"


def test_gradients_cleared_once_before_the_loop_and_then_last(companion):
    model = Model()
    optimizer = sgd(model)
    optimizer.zero_grad()
    for _ in range(3):
        loss(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        shardledger.mark("end of the iteration")
    assert outline(companion.calls) == "[0 fwd bwd opt1 ] | [1 fwd bwd opt1 ] | [2 fwd bwd opt1 ] |"


def test_optimizers_that_step_inside_backward(companion):
    model = Model()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for _ in range(2):
        loss(model).backward()
    assert outline(companion.calls).replace("opt2", "opt1") == "[0 fwd bwd opt1 opt1 ] [1 fwd bwd opt1 opt1"


@pytest.mark.parametrize("how", ["positional", "by name", "a partial", "from a schedule"])
def test_forward_and_backward_in_a_closure_are_no_part_of_the_optimizers_step(companion, how):
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    if how == "from a schedule":
        torch.optim.lr_scheduler.ConstantLR(optimizer)

    def closure(*_):
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        return value

    given = functools.partial(closure, 1) if how == "a partial" else closure
    for _ in range(2):
        assert (optimizer.step(closure=given) if how == "by name" else optimizer.step(given)) is not None
        shardledger.mark("end of the iteration")
    assert outline(companion.calls) == "opt1 [0 fwd bwd opt1 ] | opt1 [1 fwd bwd opt1 ] |"
    depth = 0
    for text in companion.calls.ranges():
        depth += text.startswith("+optimizer") or (text == "-" and depth > 0 and -1)
        assert depth == 0 or not text.startswith(("+forward", "+backward", "start step")), "the optimizer's range is closed"


def test_a_closure_that_runs_several_times_is_one_step(companion):
    model = Model()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        value = loss(model).square()
        value.backward()
        return value

    for _ in range(2):
        optimizer.step(closure)
    words = outline(companion.calls).split()
    assert [word for word in words if word[0] in "[]"] == ["[0", "]", "[1", "]"]
    assert words[:5] == ["opt1", "[0", "fwd", "bwd", "opt1"] and words.count("fwd") > 2
    assert outline(companion.calls).replace("opt1 fwd bwd ", "") == "opt1 [0 fwd bwd opt1 ] opt1 [1 fwd bwd opt1 ]"


def test_a_closure_of_an_optimizer_that_wraps_another_one(companion):
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            super().__init__(inner.param_groups, {})

        def step(self, closure=None):
            return self.inner.step(closure)

    model = Model()
    optimizer = Wrapper(sgd(model))

    def closure():
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        return value

    for _ in range(2):
        optimizer.step(closure)
    assert outline(companion.calls) == "opt1 opt2 [0 fwd bwd opt1 opt2 ] opt1 opt2 [1 fwd bwd opt1 opt2 ]"


def test_what_a_step_is_given_that_is_no_closure_stays_what_it_is(companion):
    class Own(torch.optim.SGD):
        def step(self, model):
            assert isinstance(model, Model)

    model = Model()
    Own(model.parameters(), lr=0.1).step(model)
    assert companion.guard.on


def test_the_users_own_steps_take_over(companion):
    model = Model()
    optimizer = sgd(model)
    for _ in range(2):
        shardledger.step()
        for _ in range(2):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd opt1 fwd bwd opt1 ] [1 fwd bwd opt1 fwd bwd opt1"


def test_a_model_that_no_hook_sees_steps_from_its_backward_to_its_optimizer(companion):
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(2):
        (weight * 2).sum().backward()
        optimizer.step()
    assert outline(companion.calls) == "[0 bwd opt1 ] [1 bwd opt1 ]"


def test_each_steps_end_samples_the_device_and_each_part_of_the_first_two(companion):
    model = Model()
    optimizer = sgd(model)
    samples = []
    for _ in range(4):
        before = len(companion.calls.named("device_sample", "device_sample_if_due"))
        loss(model).backward()
        optimizer.step()
        samples.append(len(companion.calls.named("device_sample", "device_sample_if_due")) - before)
    assert samples == [3, 3, 1, 1]  # forward, backward, end


def test_an_optimizer_step_that_raises_is_closed(companion):
    model = Model()
    optimizer = torch.optim.LBFGS(model.parameters())

    def fail():
        raise ValueError("user's")

    for _ in range(2):
        with pytest.raises(ValueError, match="user's"):
            optimizer.step(fail)
    assert companion.calls.ranges() == 4 * ["+optimizer_step LBFGS", "-"]
    optimizer.zero_grad()
    loss(model).backward()
    assert outline(companion.calls).endswith("[0 fwd bwd")


def test_an_optimizer_that_steps_without_the_first_takes_its_place(companion):
    first, second = Model(), Model()
    old, new = sgd(first), sgd(second)
    for model, optimizer in ((first, old), (second, new), (second, new), (second, new)):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd opt1 ] [1 fwd bwd opt2 ] [2 fwd bwd opt2 ] [3 fwd bwd opt2 ]"


def test_what_cuda_graphs_are_made_of_is_no_step(companion):
    model = Model()

    def make_graphed_callables():
        for _ in range(3):
            torch.autograd.grad(loss(model), model.parameters())

    outside._tries(make_graphed_callables)()
    assert "[" not in outline(companion.calls)
    optimizer = sgd(model)
    for _ in range(2):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    assert [word for word in outline(companion.calls).split() if word[0] in "[]"] == ["[0", "]", "[1", "]"]
    assert torch.cuda.make_graphed_callables._is_shardledgers and torch.cuda.graphs.make_graphed_callables._is_shardledgers
