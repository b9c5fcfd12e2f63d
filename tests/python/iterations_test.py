"""Iterations whose optimizer does not step, or that clear, keep or use up gradients otherwise than by it."""

import pytest
import torch
from conftest import sharded_models
from steps_outline import Model, loss, outline, sgd


def test_a_step_that_a_gradient_scaler_skips_ends_with_the_next_zero_grad(companion):
    model = Model()
    optimizer = sgd(model)
    for skip in (True, False):
        optimizer.zero_grad()
        loss(model).backward()
        if not skip:
            optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd ] [1 fwd bwd opt1 ]"


def test_a_step_that_a_forward_began_and_a_scaler_skips_ends_with_the_next_zero_grad_too(companion):
    model = Model()
    optimizer = sgd(model)
    for skip in (False, True, False):
        optimizer.zero_grad()
        loss(model).backward()
        if not skip:
            optimizer.step()
            loss(model)  # a forward with gradients after the step, which begins the next one
    assert outline(companion.calls) == "[0 fwd bwd opt1 ] [1 fwd fwd bwd ] [2 fwd bwd opt1 ] [3 fwd"


def test_a_step_that_a_gradient_scaler_skips_where_gradients_are_cleared_last(companion):
    model = Model()
    optimizer = sgd(model)
    for skip in (True, False, True, False):
        loss(model).backward()
        if not skip:
            optimizer.step()
        optimizer.zero_grad()
    assert outline(companion.calls) == "[0 fwd bwd ] [1 fwd bwd opt1 ] [2 fwd bwd ] [3 fwd bwd opt1 ]"


def test_gradients_taken_one_loss_after_the_other_are_one_step(companion):
    """As in gradient surgery, which clears between backwards."""
    model = Model()
    optimizer = sgd(model)
    for _ in range(2):
        value = loss(model)
        for _ in range(2):
            optimizer.zero_grad()
            value.backward(retain_graph=True)
        optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd bwd opt1 ] [1 fwd bwd bwd opt1 ]"


class Climbing(torch.optim.Optimizer):
    """As SAM: it moves the parameters before the second backward, and another optimizer steps."""

    def __init__(self, parameters):
        self.base = torch.optim.SGD(parameters, lr=0.1)
        super().__init__(self.base.param_groups, {})

    @torch.no_grad()
    def climb(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad)
        self.zero_grad()


@pytest.mark.parametrize("clears", ["first", "last", "by the climb only"])
def test_gradients_cleared_between_two_backwards_where_parameters_are_moved_end_nothing(companion, clears):
    model = Model()
    optimizer = Climbing(model.parameters())
    for _ in range(3):
        if clears == "first":
            optimizer.zero_grad()
        loss(model).backward()
        optimizer.climb()
        loss(model).backward()
        optimizer.base.step()
        if clears == "last":
            optimizer.zero_grad()
    assert outline(companion.calls) == " ".join(f"[{i} fwd bwd fwd bwd opt2 ]" for i in range(3))


def test_a_loop_that_updates_its_parameters_itself_and_has_an_optimizer_clear_them_is_two_iterations_a_step_at_most_once(companion):
    model = Model()
    optimizer = sgd(model)
    for _ in range(4):
        loss(model).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad)
        optimizer.zero_grad()
    loss(model)
    assert outline(companion.calls) == "[0 fwd bwd fwd bwd ] [1 fwd bwd ] [2 fwd bwd ] [3 fwd"


def test_gradients_that_are_put_away_for_the_optimizer_end_no_step(companion):
    """As DeepSpeed does, which keeps them in buffers of its own until it steps."""
    model = Model()
    flat = torch.zeros(6, requires_grad=True)
    optimizer = sgd(flat)
    for _ in range(2):
        kept = torch.zeros(6)
        for _ in range(3):
            loss(model).backward()
            kept += torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
            for parameter in model.parameters():
                parameter.grad = None
        flat.grad = kept
        optimizer.step()
        flat.grad = None
    assert outline(companion.calls) == "[0 fwd bwd fwd bwd fwd bwd opt1 ] [1 fwd bwd fwd bwd fwd bwd opt1 ]"


def test_an_iteration_without_a_backward_ends_where_the_next_one_clears(companion):
    """As where a loss is not finite, and the loop goes on."""
    model = Model()
    optimizer = sgd(model)
    for finite in (True, False, False, True):
        optimizer.zero_grad()
        value = loss(model)
        if not finite:
            continue
        value.backward()
        optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd opt1 ] [1 fwd ] [2 fwd ] [3 fwd bwd opt1 ]"


def test_gradients_cleared_elsewhere_after_a_forward_end_nothing(companion):
    model = Model()
    optimizer = sgd(model)
    for _ in range(2):
        optimizer.zero_grad()
        value = loss(model)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    assert outline(companion.calls) == "[0 fwd bwd opt1 ] [1 fwd bwd opt1 ]"


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


@pytest.mark.parametrize("clears_first", [True, False])
def test_gradients_that_fsdp2_keeps_unreduced_in_another_dtype_are_not_gone(companion, two_ranks, clears_first):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = Model()
    sharded_models.append(model)
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    optimizer = sgd(model)
    for _ in range(2):
        if clears_first:
            optimizer.zero_grad()
        for micro_batch in range(3):
            model.set_requires_gradient_sync(micro_batch == 2)
            loss(model).backward()
        optimizer.step()
        if not clears_first:
            optimizer.zero_grad()
    one = " ".join(["fwd bwd"] * 3) + " opt1 ]"
    assert outline(companion.calls).replace("FSDPModel", "Model") == f"[0 {one} [1 {one}"
