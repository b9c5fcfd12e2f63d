"""What happens when the companion's own code fails: it goes off for good, and the job does not notice."""

import pytest
import torch
from torch import nn


def train(steps=3):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("native", ["push", "start", "module", "tag", "device_sample", "end"])
@pytest.mark.parametrize("after", [0, 3])
def test_a_failure_turns_it_off_says_so_once_and_changes_no_result(companion, monkeypatch, capfd, native, after):
    expected = train()
    companion.calls.clear()
    calls, works = [0], getattr(companion.native, native)

    def fail(*arguments):
        calls[0] += 1
        if calls[0] > after:
            raise RuntimeError("broken on purpose")
        return works(*arguments)

    monkeypatch.setattr(companion.native, native, fail)
    capfd.readouterr()
    assert torch.equal(train(), expected)
    if calls[0] > after:
        assert not companion.guard.on
        assert ("source_state", "companion", "failed", "RuntimeError: broken on purpose") in companion.calls
        lines = capfd.readouterr().err.splitlines()
        assert lines == ["shardledger: the companion failed and is off, training goes on "
                         "(RuntimeError: broken on purpose)"]
        noted = len(companion.calls)
        train()
        assert len(companion.calls) <= noted + 1  # a range that was open may still be closed


def test_quiet_is_quiet(companion, monkeypatch, capfd):
    monkeypatch.setenv("SHARDLEDGER_LOG", "quiet")
    companion.guard.disable(ValueError("x"))
    assert capfd.readouterr().err == ""


def test_only_the_first_rank_of_a_node_speaks(companion, monkeypatch, capfd):
    monkeypatch.setenv("LOCAL_RANK", "1")
    companion.guard.disable(ValueError("x"))
    assert capfd.readouterr().err == ""


def test_the_users_exception_is_the_one_that_arrives_when_ours_fails_too(companion, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("ours")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(1, 1)

        def forward(self, x):
            monkeypatch.setattr(companion.native, "pop", fail)
            raise ValueError("user's")

    with pytest.raises(ValueError, match="user's"):
        Model()(torch.ones(1))
    assert not companion.guard.on
    companion.forward._thread.open.clear()
