"""A request of memory that is refused: what is alive then has its tags, and nothing of it harms the job."""

import ctypes
import threading

import torch
from torch import nn

from shardledger._companion.hooks import cycle
from shardledger._companion.tagging import refusals


def addresses(calls, category):
    return {call[2] for call in calls.named("tag") if call[3] == category}


def address(tensor):
    return tensor.untyped_storage().data_ptr()


class RunsOut(torch.optim.SGD):
    """Makes state for its first parameter, and is refused that of the second one."""

    def step(self, closure=None):
        for group in self.param_groups:
            for i, parameter in enumerate(group["params"]):
                if i == 1:
                    refusals.refused(0, 1 << 30)
                    raise torch.OutOfMemoryError("as PyTorch's")
                self.state[parameter]["average"] = torch.zeros_like(parameter)


def run_out(model):
    optimizer = RunsOut(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    try:
        optimizer.step()
    except torch.OutOfMemoryError:
        pass
    return optimizer


def test_gradients_and_the_part_of_the_state_that_is_made_are_tagged(companion, monkeypatch):
    monkeypatch.setattr(refusals, "_count", 0)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = run_out(model)
    assert addresses(companion.calls, "gradient") >= {address(parameter.grad) for parameter in model.parameters()}
    made = optimizer.state[model[0].weight]["average"]
    assert addresses(companion.calls, "optstate") == {address(made)}
    names = {call[5] for call in companion.calls.named("tag") if call[3] == "optstate"}
    assert names == {"0.weight.average"}
    refused = companion.calls.ranges()
    assert refused[refused.index("+optimizer_step RunsOut"):] == ["+optimizer_step RunsOut", "-"]


def test_a_refusal_in_a_forward_tags_what_other_optimizers_and_models_hold(companion, monkeypatch):
    monkeypatch.setattr(refusals, "_count", 0)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    model.weight.data = model.weight.data.clone()
    companion.calls.clear()
    refusals.refused(0, 1)
    assert addresses(companion.calls, "param") == {address(model.weight)}
    assert address(optimizer.state[model.weight]["exp_avg"]) in addresses(companion.calls, "optstate")
    assert address(model.weight.grad) in addresses(companion.calls, "gradient")


def test_a_failure_is_said_once_and_does_not_arrive_in_the_allocator(companion, monkeypatch, capfd):
    monkeypatch.setattr(refusals, "_count", 0)

    def fail():
        raise SystemExit("not the job's")

    monkeypatch.setattr(cycle, "alive", fail)
    for _ in range(2):
        refusals.refused(0, 1)
    lines = capfd.readouterr().err.splitlines()
    assert lines == ["shardledger: what was alive when memory ran out has not all of its tags (SystemExit: not the job's)"]
    assert companion.guard.on and not refusals._is_tagging


def test_it_is_never_entered_again_and_not_without_end(companion, monkeypatch):
    monkeypatch.setattr(refusals, "_count", 0)
    calls = []

    def alive():
        calls.append(1)
        refusals.refused(0, 1)  # as if a tag's own memory were refused
        return []

    monkeypatch.setattr(cycle, "alive", alive)
    for _ in range(100):
        refusals.refused(0, 1)
    assert len(calls) == refusals._TAGGED_MAX
    companion.guard.on = False
    monkeypatch.setattr(refusals, "_count", 0)
    refusals.refused(0, 1)
    assert len(calls) == refusals._TAGGED_MAX


def test_the_callback_runs_on_a_thread_without_the_interpreters_lock(companion, monkeypatch):
    """As the allocator calls it: ctypes gives the lock up for the call, and the callback takes it."""
    monkeypatch.setattr(refusals, "_count", 0)
    seen = []
    monkeypatch.setattr(cycle, "alive", lambda: seen.append(threading.get_ident()) or [])

    class Library:
        @staticmethod
        def observe_refusals(callback, is_finalizing, thread_state):
            Library.functions = [function.value for function in (callback, is_finalizing, thread_state)]
            return 0

    monkeypatch.setattr(refusals, "_callback", None)
    refusals.observe(Library, None)
    callback, is_finalizing, thread_state = Library.functions
    assert ctypes.PYFUNCTYPE(ctypes.c_int)(is_finalizing)() == 0
    assert ctypes.PYFUNCTYPE(ctypes.c_void_p)(thread_state)()
    without_the_lock = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint64)(callback)
    thread = threading.Thread(target=without_the_lock, args=(0, 1))
    thread.start()
    thread.join()
    assert seen == [thread.ident]
