"""torch.compile on a GPU, with ShardLedger and without: the same graphs, as often, and the same losses.

    python tests/gpu/compile_matrix.py [--device cpu] [--only WORD]

One GPU; a line a configuration with both counts, exit status 1 when any differ. Each configuration trains in a process with
the plugin and in one without. tests/python/compile_test.py has many more configurations, without a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from checks.harness import BUILD, PLUGIN, clean_environment  # noqa: E402

HOW = ("blocks by compile()", "blocks by torch.compile", "whole by torch.compile")
MODES = ("inductor", "reduce-overhead")
SHARDING = ("plain", "fsdp2")
SELECTIONS = ("fsdp", "all")
STEPS, BLOCKS, WIDTH = 4, 12, 64
SECONDS = 300  # of one process


def train(how, mode, sharding, selection, device):
    import torch
    from torch import nn

    torch.zeros(1, device=device)  # attaches, on a GPU
    if device == "cpu" and "NVTX_INJECTION64_PATH" in os.environ:
        import shardledger

        assert shardledger.attach()
    os.environ["SHARDLEDGER_MODULES"] = selection

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return x + self.second(torch.relu(self.first(x)))

    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(BLOCKS)]).to(device)
    options = {"mode": mode} if mode == "reduce-overhead" else {"backend": mode}
    whole = how.startswith("whole")
    for i, block in enumerate(() if whole else list(model)):
        if how == "blocks by compile()":
            block.compile(fullgraph=True, **options)
        else:
            model[i] = torch.compile(block, fullgraph=True, **options)
    if sharding == "fsdp2":
        shard(model, device)
    call = torch.compile(model, **options) if whole else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.compiler.cudagraph_mark_step_begin()
        loss = call(torch.ones(8, WIDTH, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(round(float(loss.detach()), 4))
    counters = torch._dynamo.utils.counters
    return {"graphs": counters["stats"]["unique_graphs"], "frames": counters["frames"]["total"],
            "graph_breaks": sum(counters["graph_break"].values()),
            "skipped_cudagraphs": counters["inductor"]["cudagraph_skips"], "losses": losses}


def shard(model, device):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    store = dist.FileStore(os.environ["RENDEZVOUS"], 1)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", store=store, rank=0, world_size=1)
    mesh = init_device_mesh(device, (1,))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def start(configuration, device, place, plugin):
    environment = clean_environment()
    environment.update(RENDEZVOUS=str(place / f"rendezvous-{plugin}"), SHARDLEDGER_DIR=str(place / "run"), OMP_NUM_THREADS="1",
                       TORCHINDUCTOR_CACHE_DIR=str(place.parent / f"inductor-{plugin}"))
    if plugin:
        environment.update(CUDA_INJECTION64_PATH=str(PLUGIN), NVTX_INJECTION64_PATH=str(PLUGIN))
        environment["PYTHONPATH"] = str(BUILD / "lib" / "python")
    return subprocess.Popen([sys.executable, __file__, "--device", device, "--child", *configuration], env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")


def finish(process):
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"failed": f"no end after {SECONDS} s"}
    if process.returncode == 0:
        return json.loads(out.splitlines()[-1])
    return {"failed": (err.strip().splitlines() or [f"exit status {process.returncode}"])[-1][:200]}


def compare(configuration, device, work):
    """Whether both ran and are the same; and a line that says so."""
    place = Path(tempfile.mkdtemp(dir=work))
    without, with_plugin = (finish(process) for process in [start(configuration, device, place, plugin) for plugin in (False, True)])
    same = without == with_plugin and "failed" not in without
    # Also the plugin has nothing to compare with where torch itself fails.
    word = "same" if same else "both fail" if without.get("failed") and without == with_plugin else "DIFFERENT"
    show = lambda run: run.get("failed") or f"{run['graphs']} graphs, {run['frames']} frames, {run['graph_breaks']} breaks"  # noqa: E731
    wrong = "" if without.get("losses") == with_plugin.get("losses") else "; losses differ"
    name = ", ".join([*configuration[:3], f"modules {configuration[3]}"])
    return word != "DIFFERENT", f"{word:<9}  {name:<66}  without: {show(without)}; with: {show(with_plugin)}{wrong}"


def main():
    p = argparse.ArgumentParser(description="Compares what torch.compile does on a GPU with ShardLedger and without.")
    p.add_argument("--device", default="cuda", help="cpu: a trial of this script itself")
    p.add_argument("--only", help="only configurations with this word in their name")
    p.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = p.parse_args()
    if options.child:
        print(json.dumps(train(*options.child, options.device)))
        return 0
    same = True
    with tempfile.TemporaryDirectory(prefix="shardledger-compile-", ignore_cleanup_errors=True) as work:
        for configuration in [(h, m, s, n) for s in SHARDING for m in MODES for h in HOW for n in SELECTIONS]:
            if options.only and options.only not in " ".join(configuration):
                continue
            right, line = compare(configuration, options.device, work)
            same &= right
            print(line, flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
