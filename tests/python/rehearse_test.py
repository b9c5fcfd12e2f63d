"""`shardledger rehearse`: programs as one rank of many, on the CPU. What a GPU shows is tests/gpu/rehearsal's."""

import json
import math
import os
import sqlite3
import subprocess
import sys

import pytest
from conftest import BUILD, HERE

COMMAND = os.path.join(BUILD, "bin", "shardledger")
JOB = os.path.join(HERE, "job_rehearsed.py")
DATA = os.path.join(HERE, "..", "data")


class Rehearsed:
    def __init__(self, place, arguments, command, environment):
        self.directory = place / "out"
        done = subprocess.run(
            [COMMAND, "rehearse", "-o", self.directory, *map(str, arguments), "--", *command],
            text=True,
            capture_output=True,
            timeout=1200,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
        self.facts = {key: value for line in self.lines for key, value in line.items()}

    def ask(self, sql):
        with sqlite3.connect(self.directory / "ledger.sqlite") as ledger:
            return ledger.execute(sql).fetchall()


@pytest.fixture
def rehearse(tmp_path):
    def run(job, *arguments, world=4, command=None, **environment):
        return Rehearsed(tmp_path, ["--world-size", world, *arguments], command or [sys.executable, JOB, job], environment)

    return run


@pytest.fixture(scope="module", params=[0, 3])
def told(request, tmp_path_factory):
    found = Rehearsed(
        tmp_path_factory.mktemp("told"), ["-n", "4", "--rank", str(request.param)], [sys.executable, JOB, "collectives"], {}
    )
    assert found.status == 0, found.err
    return found.facts


def test_a_sum_counts_all_ranks_and_all_else_is_this_ranks_own(told):
    assert told["sum"] == [4, 8] and told["counted"] == [4]
    assert told["max"] == told["min"] == told["avg"] == told["product"] == [1, 2]
    assert told["xor"] == [0] and told["either"] == [5] and told["true"] == [True]


def test_gathered_are_copies_also_in_place_and_in_a_list(told):
    assert told["all_gather"] == told["in_place"] == [1, 2] * 4
    assert told["scalars"] == [5] * 4
    assert told["all_gather_list"] == [[1, 2]] * 4
    assert told["completed"] and told["future"] == [1, 2]


def test_scattered_is_the_own_part(told):
    rank = told["rank"]
    assert told["reduce_scatter"] == [8 * rank, 8 * rank + 4]
    assert told["reduce_scatter_list"] == [2 * rank, 2 * rank + 1]
    assert told["scatter"] == [0, 0]
    assert told["reduce"] == [4, 8] and told["broadcast"] == [1, 2]
    assert told["gather"] == ([[1, 2]] * 4 if rank == 0 else None)


def test_each_gives_this_rank_what_it_gets_from_it(told):
    assert told["all_to_all"] == told["all_to_all_list"] == [0, 1, 2, 3]
    assert told["uneven"] == [7, 8, 0]
    assert told["recv"] == [0, 0] and told["recv_numbers"] == [3, 4]


def test_objects_are_as_if_all_said_the_same(told):
    rank = told["rank"]
    assert told["objects"] == [{"rank": rank}] * 4
    assert told["said"] == [{"rank": rank}]
    assert told["handed"] == [f"part {rank}"]


def test_the_program_finds_its_place_and_the_backend_that_it_asked_for(told):
    rank = told["rank"]
    assert (told["world"], told["initialized"], told["is_torchelastic"]) == (4, True, True)
    assert told["backend"] == "cpu:gloo,cuda:nccl"
    assert told["environment"] == {
        "RANK": str(rank),
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "0",
    }
    assert told["even"] == (rank % 2 == 0)
    assert told["split"] == ([0, 1] if rank < 2 else [2, 3])
    assert told["coordinate"] == [rank // 2, rank % 2]


def test_functional_collectives_and_dtensors(told):
    assert told["functional_sum"] == [4, 4] and told["functional_gather"] == [1, 1] and told["functional_scatter"] == [4]
    assert told["coalesced"] == [[1], [1, 1]] and told["exchanged"] == [0, 1, 2, 3]
    assert told["local"] == [2, 4] and told["replicated"] == [4, 4] and told["is_dtensor"]


@pytest.mark.parametrize("debug", ["OFF", "DETAIL"])
def test_the_place_is_the_rehearsals_however_the_program_looks_for_others(rehearse, debug):
    found = rehearse("places", "--rank", 3, TORCH_DISTRIBUTED_DEBUG=debug, TORCH_DIST_INIT_BARRIER=str(int(debug == "DETAIL")))
    assert found.status == 0, found.err
    asked = {"nothing": "undefined", "tcp": "nccl", "options": "nccl", "rendezvous": "cpu:gloo"}
    assert found.facts["places"] == {
        name: [3, 4, asked.get(name, "gloo"), "nccl" if asked.get(name) == "nccl" else "gloo", True, 2]
        for name in ("nothing", "env", "file", "tcp", "store", "options", "rendezvous")
    }


def test_every_kind_of_parallelism_trains_and_keeps_its_values_finite(rehearse):
    found = rehearse("sharded", "--rank", 5, "--steps", 99, world=8)
    assert found.status == 0, found.err
    assert (found.facts["rank"], found.facts["world"]) == (5, 8)
    assert set(found.facts["losses"]) == {"fsdp2", "hsdp", "tp", "ddp", "fsdp1"}
    assert all(math.isfinite(loss) for loss in found.facts["losses"].values())
    assert found.facts["shapes"]["fsdp2"] == [8, 16]
    assert "init_process_group says world_size=3; the rehearsal's is 8" in found.err


def test_uneven_shards(rehearse):
    found = rehearse("sharded", "--rank", "last", "--steps", 99, world=70)
    assert found.status == 0, found.err
    assert found.facts["shapes"]["fsdp2"] == [0, 16]


def test_it_ends_where_a_step_too_many_would_begin_and_the_program_cleans_up(rehearse):
    found = rehearse("training", "--steps", 2, "--rank", "0,last", world=64)
    assert found.status == 0, found.err
    assert found.lines == [{"step": 0}, {"step": 1}, {"clean": True}] * 2
    assert found.err.count("ended after its steps") == 2


def test_everything_says_that_it_is_a_rehearsal_and_no_rank_is_missing(rehearse):
    found = rehearse("training", "--steps", 1, "--rank", "0,last", world=64)
    assert "\nrehearsal of ranks 0,63 of 64; 0 events lost" in found.out
    assert "NCCL's own memory is not in these figures" in found.out
    assert [(rank, world) for rank, world in found.ask("SELECT rank, world_size FROM rank ORDER BY rank")] == [(0, 64), (63, 64)]
    assert len({word for (word,) in found.ask("SELECT rehearsal FROM rank")}) == 1
    assert found.ask("SELECT count(*) FROM missing_ranks") == [(0,)]
    assert found.ask("SELECT count(*) FROM attempt") == [(1,)]
    for command in ("info", "oom", "ranks", "peaks", "survivors"):
        shown = subprocess.run([COMMAND, command, found.directory], capture_output=True, text=True)
        assert shown.stdout.startswith("rehearsal of ranks 0,63 of 64; "), (command, shown.stdout, shown.stderr)
    watched = subprocess.run([COMMAND, "watch", "--once", found.directory], capture_output=True, text=True)
    assert "rehearsal" in watched.stdout.splitlines()[0]


def test_a_second_rehearsal_is_a_run_of_its_own(rehearse, tmp_path):
    rehearse("training", "--steps", 1)
    again = rehearse("training", "--steps", 1)
    assert "holds an earlier run; recording into" in again.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out-2"]


@pytest.mark.parametrize(
    "job, sentence",
    [
        ("numbers", "torch.distributed.recv wants 3 whole numbers from rank 0, which only that rank knows"),
        ("store", "the program waits for the key there of a store of torch.distributed, which another rank sets"),
        ("objects", "scatter_object_list wants an object of rank 0, which only that rank knows"),
        ("unknown_backend", "init_process_group asks for the backend mpi; nccl and gloo can be rehearsed"),
        ("remote_calls", "torch.distributed.rpc.init_rpc wants other ranks to answer"),
    ],
)
def test_what_only_another_rank_knows_is_named_and_ends_it_with_2(rehearse, job, sentence):
    found = rehearse(job, "--rank", 1)
    assert found.status == 2
    assert f"shardledger: a rehearsal can't go on: {sentence}\n" in found.err
    if job == "store":
        assert found.facts == {"arrived": 4, "rank": 1, "world": 4, "here": "yes"}


def test_a_failure_of_the_programs_own_is_its_exit_status(rehearse):
    found = rehearse("fails")
    assert found.status == 1
    assert "the job's own error" in found.err and "can't go on" not in found.err


def test_torchruns_command_line_starts_one_worker_however_many_it_names(rehearse):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "2",
        "--nproc-per-node",
        "8",
        "--node-rank",
        "1",
        "--master-addr",
        "nowhere.example",
        JOB,
        "training",
    ]
    found = rehearse("", "--rank", 11, "--steps", 1, world=16, command=command)
    assert found.status == 0, found.err
    assert found.lines == [{"step": 0}, {"clean": True}]


def test_a_refusal_below_a_launcher_is_the_commands_too(rehearse):
    found = rehearse(
        "", "--rank", 1, command=[sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", JOB, "numbers"]
    )
    assert found.status == 2
    assert "recv wants 3 whole numbers" in found.err


def test_a_program_that_spawns_its_ranks_spawns_one(rehearse):
    found = rehearse("spawns", "--rank", 6, world=8)
    assert found.status == 0, found.err
    assert found.lines == [{"index": 0, "rank": 6, "world": 8}]


def test_the_users_sitecustomize_still_runs(rehearse, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['SEEN'] = '1'\n")
    found = rehearse("", command=[sys.executable, "-c", "import os; print(os.environ['SEEN'])"], PYTHONPATH=str(tmp_path))
    assert found.status == 0, found.err
    assert found.out.splitlines()[0] == "1"


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ([], "--world-size says how many ranks the job is to have"),
        (["--world-size", "0"], "--world-size says how many ranks the job is to have"),
        (["--world-size", "4", "--rank", "4"], "--rank takes ranks from 0 to 3"),
        (["--world-size", "4", "--rank", "0,"], "--rank takes ranks from 0 to 3"),
        (["--world-size", "4", "--rank", "2-1"], "--rank takes ranks from 0 to 3"),
        (["--world-size", "4", "--steps", "0"], "--steps takes 1 or more"),
        (["--world-size", "4", "--gpus-per-node", "5"], "--gpus-per-node is 5, and there are 4 ranks"),
        (["--world-size", "4", "--device-memory", "much"], "--device-memory"),
    ],
)
def test_wrong_input_is_one_sentence_and_2(arguments, sentence, tmp_path):
    done = subprocess.run([COMMAND, "rehearse", "-o", tmp_path / "out", *arguments, "--", "true"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert sentence in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def uses(tensor):
    import torch

    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


@pytest.fixture
def nccl():
    """A group as NCCL's would be, rank 1 of 3, whose tensors are the CPU's."""
    import torch
    from shardledger._companion.rehearsing import mirror

    mirror.load()
    group = torch._C._distributed_c10d.ProcessGroup(torch._C._distributed_c10d.HashStore(), 1, 3)
    torch.ops.shardledger_rehearsal.put_mirror(group.boxed(), "nccl")
    return group


def test_an_asynchronous_call_keeps_its_tensors_until_somebody_waits_and_a_synchronous_one_none(nccl):
    import torch
    from torch._C._distributed_c10d import AllgatherOptions

    own, every = torch.ones(4), torch.empty(12)
    before, options = uses(own), AllgatherOptions()
    options.asyncOp = False
    assert nccl._allgather_base(every, own[:], options) is None
    assert uses(own) == before and every.sum() == 12
    options.asyncOp = True
    work = nccl._allgather_base(every, own[:], options)  # a tensor that nobody else holds
    assert uses(own) > before
    work.wait()
    assert uses(own) == before
    del work


def test_what_a_group_is_used_for_is_told_when_it_is_new(nccl):
    import ctypes

    import torch
    from shardledger._companion.rehearsing import mirror

    told, function = [], ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int, ctypes.c_int)
    note = function(lambda _, ranks, uses: told.append((ranks, uses)))
    mirror._library.slm_on_use(note)
    try:
        own = torch.ones(3)
        nccl.scatter(torch.ones(1), [], 0)
        nccl.allreduce([own])
        nccl.allreduce([own])
        nccl.gather([], own, 0)
        nccl.send([own], 0, 0)
    finally:
        mirror._library.slm_on_use(function())
    assert told == [(3, 4), (3, 5), (3, 7)]  # receives, then rings, then sends


@pytest.mark.parametrize("is_held", (True, False))
def test_what_nobody_waits_for_is_let_go_by_a_later_call_whether_or_not_its_work_is_gone(nccl, is_held):
    import time

    import torch
    from torch._C._distributed_c10d import AllgatherOptions

    own, every, options = torch.ones(4), torch.empty(12), AllgatherOptions()
    before, kept = uses(own), []
    for _ in range(50):  # until nothing interrupts the first two calls for so long that the second one is late
        began = time.monotonic()
        forgotten = nccl._allgather_base(every, own[:], options)
        kept += [forgotten] if is_held else []
        del forgotten
        nccl._allgather_base(torch.empty(3), torch.ones(1), options).wait()  # too early
        if time.monotonic() < began + 0.1:
            break
    assert uses(own) > before
    time.sleep(0.15)
    assert uses(own) > before
    nccl._allgather_base(torch.empty(3), torch.ones(1), options).wait()
    assert uses(own) == before


def test_what_nccl_refuses_is_refused(nccl):
    import torch
    from torch._C._distributed_c10d import AllgatherOptions, AllreduceOptions

    with pytest.raises(RuntimeError, match="must be contiguous"):
        nccl.allreduce([torch.ones(4, 4).t()], AllreduceOptions())
    with pytest.raises(RuntimeError, match="world_size times input"):
        nccl._allgather_base(torch.empty(4), torch.ones(4), AllgatherOptions())


def test_what_another_rank_has_not_written_is_a_number(nccl):
    import torch
    from torch._C._distributed_c10d import BroadcastOptions

    options = BroadcastOptions()
    options.rootRank = 0
    tensor = torch.tensor([1.0, math.nan, -math.inf])
    nccl.broadcast([tensor], options).wait()
    assert tensor.tolist() == [1, 0, -math.inf]


def test_the_group_compiles_cleanly(tmp_path):
    from shardledger._companion.allocations import compiler

    command = compiler._command(compiler.MIRROR, compiler.find_compiler(), None, "c++17", str(tmp_path / "mirror.so"))
    command[command.index("-w")] = "-Wall"
    command[command.index("-shared")] = "-fsyntax-only"
    command[1:1] = ["-Wextra", "-Werror", "-Wno-unused-parameter"]
    done = compiler._run(command, 600)
    assert done.returncode == 0, done.stdout


LIGHTNING = """
import torch, lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 8)
    def training_step(self, rows, number):
        print("step", number, self.trainer.global_rank, self.trainer.world_size, flush=True)
        return self.net(rows).square().mean()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
trainer = lightning.Trainer(accelerator="cpu", devices=8, num_nodes=2, strategy="ddp", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False, max_epochs=1)
trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(800, 8), batch_size=2))
"""


def test_lightning(rehearse):
    pytest.importorskip("lightning")
    found = rehearse("", "--rank", 9, "--steps", 2, world=16, command=[sys.executable, "-c", LIGHTNING])
    assert found.status == 0, found.err
    assert [line for line in found.out.splitlines() if line.startswith("step")] == ["step 0 9 16", "step 1 9 16"]


@pytest.mark.parametrize("job", ["hf-trainer", "hf-accelerate"])
def test_hugging_face(rehearse, tmp_path, job):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    script = os.path.join(HERE, "..", "gpu", "matrix", "hugging_face.py")
    found = rehearse(
        "",
        "--rank",
        1,
        "--steps",
        9,
        HF_HUB_OFFLINE="1",
        command=[sys.executable, script, "--jobs", job, "--truth", str(tmp_path / "truth"), "--device", "cpu"],
    )
    assert found.status == 0, found.err
    assert '"done": 1' in (tmp_path / "truth.rank1").read_text()
