"""CUPTI is given up for a profile of CUDA, and only for one."""

import gc

import pytest
import torch
from torch.profiler import ProfilerActivity, profile


def handovers(companion):
    return [call[0] for call in companion.calls.named("cupti_release", "cupti_reacquire")]


def pretend_cuda(monkeypatch):
    import sys

    monkeypatch.setattr(sys.modules["shardledger._companion.hooks.handover"], "_wants_cuda", lambda profile: True)


def test_a_profile_of_the_cpu_leaves_cupti_where_it_is(companion):
    with profile(activities=[ProfilerActivity.CPU]) as result:
        torch.ones(1) + 1
    assert handovers(companion) == []
    assert any(event.name == "aten::add" for event in result.events())


def test_a_profile_of_cuda_gets_cupti_first_and_it_comes_back(companion, monkeypatch):
    pretend_cuda(monkeypatch)
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CPU]):
            pass
    assert handovers(companion) == 2 * ["cupti_release", "cupti_reacquire"]


def test_each_cycle_of_a_schedule_is_a_handover(companion, monkeypatch):
    pretend_cuda(monkeypatch)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule) as running:
        for _ in range(6):
            running.step()
    assert handovers(companion) == 2 * ["cupti_release", "cupti_reacquire"]


def test_a_profile_that_raises_gives_cupti_back(companion, monkeypatch):
    pretend_cuda(monkeypatch)
    try:
        with profile(activities=[ProfilerActivity.CPU]):
            raise ValueError
    except ValueError:
        pass
    assert handovers(companion) == ["cupti_release", "cupti_reacquire"]


def test_where_cupti_is_not_in_use_nothing_is_taken_back(companion, monkeypatch):
    pretend_cuda(monkeypatch)
    monkeypatch.setattr(companion.native, "cupti_release", lambda: -19)
    with profile(activities=[ProfilerActivity.CPU]):
        pass
    assert handovers(companion) == []


def test_what_ends_meanwhile_does_not_take_cupti_from_a_running_profile(companion, monkeypatch):
    pretend_cuda(monkeypatch)
    with profile(activities=[ProfilerActivity.CPU]):
        with torch.autograd.profiler.profile(enabled=False):
            pass
        assert handovers(companion) == ["cupti_release"]
    assert handovers(companion) == ["cupti_release", "cupti_reacquire"]


@pytest.mark.parametrize("what", ["_prepare_profiler", "_enable_profiler"])
def test_a_profile_that_does_not_begin_gives_cupti_back(companion, monkeypatch, what):
    pretend_cuda(monkeypatch)

    def fail(*_):
        raise RuntimeError("broken on purpose")

    with monkeypatch.context() as broken:
        broken.setattr(torch.autograd.profiler, "_prepare_profiler", lambda *_: None)
        broken.setattr(torch.autograd.profiler, what, fail)
        with pytest.raises(RuntimeError, match="on purpose"):
            profile(activities=[ProfilerActivity.CPU]).start()
    assert handovers(companion) == ["cupti_release", "cupti_reacquire"]


def test_a_profile_that_is_thrown_away_unfinished_does_not_keep_cupti(companion, monkeypatch):
    pretend_cuda(monkeypatch)
    with monkeypatch.context() as prepared:
        prepared.setattr(torch.autograd.profiler, "_prepare_profiler", lambda *_: None)
        torch.autograd.profiler.profile()._prepare_trace()
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU]):
        pass
    assert handovers(companion)[-1] == "cupti_reacquire"
