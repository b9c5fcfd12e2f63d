"""Where steps begin and end, for the loops that people write."""

import torch
from torch import nn

import shardledger


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x)


def loss(model):
    return model(torch.ones(1, 2)).sum()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def outline(calls):
    """Steps with the roots' forwards, backwards and optimizers between: "[0 fwd bwd opt1 ] eval [1 …"."""
    words = []
    for call, text in zip(calls.named("push", "pop", "start", "end"), calls.ranges()):
        if text.startswith("start step"):
            words.append("[" + text.split()[-1])
        elif text.startswith("end step"):
            words.append("]")
        elif text in ("+forward Model", "+eval Model", "+backward backward"):
            words.append({"+forward Model": "fwd", "+eval Model": "eval"}.get(text, "bwd"))
        elif text.startswith("+optimizer_step"):
            words.append(f"opt{call[3]}")
    return " ".join(words)


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


def test_a_step_that_a_gradient_scaler_skips_ends_with_the_next_zero_grad(companion):
    model = Model()
    optimizer = sgd(model)
    for skip in (True, False):
        optimizer.zero_grad()
        loss(model).backward()
        if not skip:
            optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd ] [1 fwd bwd opt1 ]"


def test_two_optimizers_in_a_row_share_the_steps_after_the_first(companion):
    model = Model()
    first, second = sgd(model), sgd(model)
    for _ in range(3):
        loss(model).backward()
        first.step()
        second.step()
    assert outline(companion.calls) == "[0 fwd bwd opt1 ] opt2 [1 fwd bwd opt1 opt2 ] [2 fwd bwd opt1 opt2 ]"


def test_two_optimizers_in_turn_make_one_step(companion):
    model = Model()
    discriminator, generator = sgd(model), sgd(model)
    for _ in range(2):
        for optimizer in (discriminator, generator):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd opt1 ] [1 fwd bwd opt2 fwd bwd opt1 ] [2 fwd bwd opt2"


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


def test_a_closure_runs_inside_its_optimizers_step(companion):
    model = Model()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    def closure():
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        return value

    for _ in range(2):
        optimizer.step(closure)
    assert outline(companion.calls) == "opt1 [0 fwd bwd ] opt1 [1 fwd bwd ]"


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


def test_an_optimizer_step_that_raises_is_closed_by_its_next(companion):
    model = Model()
    optimizer = torch.optim.LBFGS(model.parameters())

    def fail():
        raise ValueError("user's")

    for _ in range(2):
        try:
            optimizer.step(fail)
        except ValueError:
            pass
    assert companion.calls.ranges() == ["+optimizer_step LBFGS", "-", "+optimizer_step LBFGS"]


def test_a_loop_without_an_optimizer_steps_where_its_gradients_are_gone(companion):
    model = Model()
    for _ in range(2):
        for _ in range(2):  # two micro-batches
            loss(model).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    assert outline(companion.calls) == "[0 fwd bwd fwd bwd ] [1 fwd bwd fwd bwd"


def test_an_optimizer_that_steps_twice_without_the_first_takes_its_place(companion):
    first, second = Model(), Model()
    old, new = sgd(first), sgd(second)
    for model, optimizer in ((first, old), (second, new), (second, new), (second, new)):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd opt1 ] [1 fwd bwd opt2 fwd bwd opt2 ] [2 fwd bwd opt2 ]"
