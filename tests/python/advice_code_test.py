"""What 'shardledger advise' gives to paste: it runs as it is, and does what it says."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from exported import COMMAND, pytestmark  # noqa: F401

DATA = Path(__file__).resolve().parents[1] / "data"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """{change: what to paste} of a recorded run."""
    run = shutil.copytree(DATA / "predictions" / "one", tmp_path_factory.mktemp("advice") / "one")
    answer = subprocess.run([COMMAND, "advise", run, "--json"], capture_output=True, text=True, check=True).stdout
    return {item["advice"]: item["code"] for item in json.loads(answer)["advice"]}


def test_recomputation_wraps_the_entries_of_lists_and_nothing_else(code):
    model = Model()
    exec(code["recompute"], {"torch": torch, "model": model})
    assert [name for name, m in model.named_modules() if hasattr(m, "_checkpoint_wrapped_module")] == [
        "blocks.0", "blocks.1", "blocks.2"]  # fmt: skip
    model(torch.ones(1, 4)).sum().backward()


def test_the_optimizer_on_the_host_trains_as_one_on_the_device_does(code):
    torch.manual_seed(0)
    model, other = Model(), Model()
    other.load_state_dict(model.state_dict())
    names = {"torch": torch, "model": model}
    exec(code["offload_optimizer"], names)
    optimizer = torch.optim.AdamW(other.parameters())
    for _ in range(3):
        for trained in (model, other):
            trained(torch.ones(2, 4)).pow(2).sum().backward()
        names["step_on_host"]()
        optimizer.step()
        optimizer.zero_grad()
    for mine, true in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(mine, true, rtol=0, atol=0)


def test_the_optimizer_in_backward_trains_as_one_after_it_does_and_frees_gradients(code):
    torch.manual_seed(0)
    model, other = Model(), Model()
    other.load_state_dict(model.state_dict())
    exec(code["optimizer_in_backward"], {"torch": torch, "model": model})
    optimizer = torch.optim.AdamW(other.parameters())
    for _ in range(3):
        for trained in (model, other):
            trained(torch.ones(2, 4)).pow(2).sum().backward()
        assert all(p.grad is None for p in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
    for mine, true in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(mine, true, rtol=0, atol=0)
        mine._post_accumulate_grad_hooks.clear()  # they hold the model for ever, which later tests would find
