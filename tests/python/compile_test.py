"""torch.compile must not notice the companion: the same programs compile the same graphs, as often, with it and without.

job_compile.py has the programs; each group runs in one process with the plugin and in one without.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import HERE, LIBRARIES, PLUGIN

JOB = os.path.join(HERE, "job_compile.py")
sys.argv, argv = [JOB, "plain"], sys.argv
import job_compile  # noqa: E402  for the programs' names

sys.argv = argv
SECONDS = 900  # of a group, on a machine that does much else


class Group:
    """The programs of one group as they ran: {name: (result, counts)}, with and without."""

    def __init__(self, group, place):
        self.group, self.place = group, place

    def start(self, plugin):
        environment = dict(os.environ, OMP_NUM_THREADS="1", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0",
                           RENDEZVOUS=str(self.place / f"rendezvous-{plugin}"), SHARDLEDGER_DIR=str(self.place / "log"),
                           TORCHINDUCTOR_CACHE_DIR=str(self.place / f"inductor-{plugin}"), TORCHINDUCTOR_COMPILE_THREADS="1",
                           PYTHONPATH=os.path.join(LIBRARIES, "python"), **({"NVTX_INJECTION64_PATH": PLUGIN} if plugin else {}))
        return subprocess.Popen([sys.executable, JOB, self.group], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                encoding="utf-8")

    def finish(self, process):
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, err[-3000:]
        return {line["name"]: line for line in map(json.loads, out.splitlines())}

    def run(self):
        if self.group != "inductor":
            return [self.finish(process) for process in [self.start(False), self.start(True)]]
        # What C++ became is taken over, by the hash of its text: it takes most of the time. Graphs and their counts are not.
        without = self.finish(self.start(False))
        compiled = list((self.place / "inductor-False").glob("??/*.so"))
        assert compiled
        for library in compiled:
            taken = self.place / "inductor-True" / library.parent.name / library.name
            taken.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, taken)
        return [without, self.finish(self.start(True))]


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """group → its two runs, made when first asked for."""
    made = {}

    def of(group):
        if group not in made:
            made[group] = Group(group, tmp_path_factory.mktemp(group)).run()
        return made[group]

    return of


@pytest.mark.parametrize("group, name", [(group, name) for group, names in job_compile.PROGRAMS.items() for name in names])
def test_a_program_compiles_the_same_graphs_as_often_as_without(groups, group, name):
    without, with_companion = groups(group)
    assert with_companion[name] == without[name]


def test_the_programs_do_compile(groups):
    """Else the comparison would compare nothing: not many fail, and blocks of one class share a graph."""
    without, _ = groups("plain")
    failed = [name for name, run in without.items() if isinstance(run["result"], str)]
    assert not failed
    assert without["blocks selection=all how=method fullgraph=True"]["counts"]["stats"]["unique_graphs"] == 2  # the first input needs no gradient


def test_what_was_compiled_before_is_not_compiled_again_when_the_companion_attaches(groups):
    _, with_companion = groups("late")
    _, compiled = with_companion["attached_in_the_middle"]["result"]
    assert compiled and all(again == [0, 0] for again in compiled.values())


GUARDS = """
import os
import shardledger
assert shardledger.attach()
import torch
from torch import nn
from torch._dynamo.eval_frame import _debug_get_cache_entry_list

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x))

model = nn.Sequential(Block(), Block())
for block in model:
    block.compile(backend="eager", fullgraph=True)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
entries = [entry for code in (Block.forward.__code__, nn.Module._call_impl.__code__) for entry in _debug_get_cache_entry_list(code)]
guards = "".join(str(entry.guard_manager) for entry in entries)
guards = guards.replace(os.path.dirname(os.path.dirname(torch.__file__)), "")  # may have our name in it
assert "linear" in guards and "shardledger" not in guards, guards
"""


def test_no_guard_speaks_of_the_companion(tmp_path):
    environment = dict(os.environ, NVTX_INJECTION64_PATH=PLUGIN, SHARDLEDGER_DIR=str(tmp_path), SHARDLEDGER_MODULES="all",
                       PYTHONPATH=os.path.join(LIBRARIES, "python"))
    done = subprocess.run([sys.executable, "-c", GUARDS], env=environment, stderr=subprocess.PIPE, encoding="utf-8")
    assert done.returncode == 0, done.stderr
