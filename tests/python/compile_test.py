"""torch.compile must not notice the companion: the same programs compile the same graphs, as often, with it and without.

job_compile.py has the programs. All of them run in one process without the plugin; with it those of the group `late`, in whose
middle it attaches, have a process of their own. More processes would each import torch and its compiler.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import job_compile
import pytest
from checks import once
from conftest import HERE, LIBRARIES, PLUGIN

JOB = os.path.join(HERE, "job_compile.py")
SECONDS = 1500  # of all programs, on a machine that does much else
GROUPS = [group for group in job_compile.PROGRAMS if group != "late"]


class Process:
    """A process that runs programs of these groups. results(): {group: {name: what it printed}}"""

    def __init__(self, place, name, plugin, groups):
        # What C++ became is shared, by the hash of its text, and made without vectors: it takes most of the time. Graphs are not.
        environment = dict(os.environ, OMP_NUM_THREADS="1", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0",
                           RENDEZVOUS=str(place / f"rendezvous-{name}"), SHARDLEDGER_DIR=str(place / "log"),
                           TORCHINDUCTOR_CACHE_DIR=str(place / "inductor"), TORCHINDUCTOR_COMPILE_THREADS="1",
                           TORCHINDUCTOR_FX_GRAPH_CACHE="0", TORCHINDUCTOR_AUTOGRAD_CACHE="0", TORCHINDUCTOR_VEC_ISA_OK="0",
                           PYTHONPATH=os.path.join(LIBRARIES, "python"), **({"NVTX_INJECTION64_PATH": PLUGIN} if plugin else {}))
        self.out, self.err = place / f"{name}.out", place / f"{name}.err"
        with open(self.out, "w") as out, open(self.err, "w") as err:
            self.process = subprocess.Popen([sys.executable, JOB, *groups], env=environment, stdout=out, stderr=err)

    def results(self):
        assert self.process.wait(SECONDS) == 0, self.err.read_text()[-3000:]
        found = {}
        for line in map(json.loads, self.out.read_text().splitlines()):
            found.setdefault(line["group"], {})[line["name"]] = line
        return found


def run_all():
    """Without and with the companion: [{group: {name: line}}, the same]."""
    with tempfile.TemporaryDirectory() as scratch:
        place, processes = Path(scratch), []
        try:
            for name, plugin, some in (("without", False, [*GROUPS, "late"]), ("with", True, GROUPS), ("late", True, ["late"])):
                processes.append(Process(place, name, plugin, some))
            without, with_companion, late = (process.results() for process in processes)
            return without, {**with_companion, **late}
        finally:
            for process in processes:
                process.process.kill()
                process.process.wait()


@functools.cache
def groups(group):
    """Its results without and with the companion."""
    return [found[group] for found in once.answer("compile_test", run_all)]


@pytest.mark.parametrize("group, name", [(group, name) for group, names in job_compile.PROGRAMS.items() for name in names])
def test_a_program_compiles_the_same_graphs_as_often_as_without(group, name):
    without, with_companion = groups(group)
    assert with_companion[name] == without[name]


def test_the_programs_do_compile():
    """Else the comparison would compare nothing: not many fail, and blocks of one class share a graph."""
    without, _ = groups("plain")
    failed = [name for name, run in without.items() if isinstance(run["result"], str)]
    assert not failed
    assert without["blocks selection=all how=method fullgraph=True"]["counts"]["stats"]["unique_graphs"] == 2  # the first input needs no gradient


def test_what_was_compiled_before_is_not_compiled_again_when_the_companion_attaches():
    _, with_companion = groups("late")
    _, compiled = with_companion["attached_in_the_middle"]["result"]
    assert compiled and all(again == [0, 0] for again in compiled.values())


def test_no_guard_speaks_of_the_companion():
    for found in groups("plain"):
        words = found["guards_of_compiled_blocks"]["result"]
        assert words == {"linear": True, "shardledger": False}
