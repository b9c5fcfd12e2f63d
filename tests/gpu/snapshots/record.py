"""Records small jobs in PyTorch's own memory snapshots on a GPU, and beside each what PyTorch's statistics said. A few minutes.

    python tests/gpu/snapshots/record.py DIR [--only NAME]…      no ShardLedger is needed; jobs for two GPUs are left out on one

DIR/NAME.pickle.xz is the snapshot, DIR/NAME.json the statistics: one entry a look, in the order in which the looks were taken. A
look takes a snapshot, too, which PyTorch's history tells as an entry `snapshot`: so the n-th of these in the trace is the instant of
the n-th look. The snapshot that is kept is not in its own trace. Put into tests/data/snapshots/, they are compared byte by byte.
"""

import argparse
import contextlib
import ctypes
import json
import lzma
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

QUANTITIES = {"requested": "requested_bytes", "allocated": "allocated_bytes", "active": "active_bytes",
              "reserved": "reserved_bytes"}  # fmt: skip
WIDTH, BATCH, LAYERS, STEPS = 256, 128, 3, 3
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def record(enabled="all", stacks="python", **options):
    torch.cuda.memory._record_memory_history(enabled, stacks=stacks, **options)


class Looks:
    """What PyTorch's statistics said at instants that its history knows, and the highest since the look before."""

    def __init__(self):
        self.taken = []

    def take(self, what):
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)
        torch.cuda.memory_snapshot()
        self.taken.append({"what": what, "devices": [self._of(device) for device in range(torch.cuda.device_count())]})

    @staticmethod
    def _of(device):
        stats = torch.cuda.memory_stats(device)
        told = {name: {"current": stats[f"{key}.all.current"], "peak": stats[f"{key}.all.peak"]}
                for name, key in QUANTITIES.items()}
        torch.cuda.reset_peak_memory_stats(device)
        return told


def model_of(device="cuda"):
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS))).to(device)


def train(model, looks, steps=STEPS, batch=BATCH, device="cuda"):
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(steps):
        data = torch.randn(batch, WIDTH, device=device)
        model(data).pow(2).mean().backward()
        looks.take(f"step {step}, before the optimizer")
        optimizer.step()
        optimizer.zero_grad()
        looks.take(f"step {step}")
    return optimizer


# ---- jobs: each a function of its looks ----


def plain(looks):
    record()
    train(model_of(), looks)


def stacks_all(looks):
    record(stacks="all")
    train(model_of(), looks, steps=1)


def fsdp2(looks):
    from torch.distributed.fsdp import fully_shard

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("nccl")
    record()
    model = model_of()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    train(model, looks)


def late(looks):
    model = model_of()
    optimizer = train(model, Looks(), steps=1)
    kept = [torch.empty(n * 1000, device="cuda") for n in range(1, 9)]
    del kept[::2]
    record()
    looks.take("recording began")
    train(model, looks, steps=2)
    del optimizer


def ring(looks):
    record(max_entries=150)
    train(model_of(), looks)


def expandable(looks):
    record()
    model = model_of()
    train(model, looks, steps=2)
    large = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    looks.take("64 MiB more")
    del large
    torch.cuda.empty_cache()
    looks.take("cache emptied")
    train(model, looks, steps=1)


def expandable_ring(looks):
    record(max_entries=120)
    expandable_loop(looks)


def expandable_late(looks):
    model = model_of()
    train(model, Looks(), steps=1)
    record()
    expandable_loop(looks)


def expandable_loop(looks):
    model = model_of()
    for size in (24, 40):
        train(model, looks, steps=1)
        large = torch.empty(size << 20, dtype=torch.uint8, device="cuda")
        del large
        torch.cuda.empty_cache()
        looks.take("cache emptied")
    train(model, looks, steps=1)


def streams(looks):
    record()
    side = torch.cuda.Stream()
    model = model_of()
    for round_ in range(4):
        with torch.cuda.stream(side):
            made = torch.randn(3 << 20, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        used = made * 2
        made.record_stream(torch.cuda.current_stream())
        torch.cuda._sleep(20_000_000)
        del made, used
        torch.empty(5000, device="cuda")
        looks.take(f"round {round_}")
    train(model, looks, steps=1)
    # One that waits for another stream when the snapshot is taken.
    with torch.cuda.stream(side):
        made = torch.randn(3 << 20, device="cuda")
    torch.cuda._sleep(2_000_000_000)
    made.record_stream(torch.cuda.current_stream())
    del made


def blocks_of_all_sizes(looks):
    """Sizes beside the limits of pools and of splitting, freed in an order of their own."""
    record()
    kept = []
    for size in (1, 511, 512, 513, 1 << 20, (1 << 20) + 1, 9 << 20, (10 << 20) - 1, 10 << 20, (12 << 20) + 3, 3 << 20, 700_000):
        kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        looks.take(f"{size} bytes")
    for at in (6, 0, 4, 8, 2):
        kept[at] = None
        looks.take(f"without number {at}")
    torch.cuda.empty_cache()
    looks.take("cache emptied")
    kept += [torch.empty(size, dtype=torch.uint8, device="cuda") for size in (2 << 20, 11 << 20, 300)]
    looks.take("three more")


def out_of_memory(looks):
    record()
    written = {}

    def observer(device, requested, total, free):
        written["snapshot"] = torch.cuda.memory._snapshot()
        looks.refused = {"device": device, "requested": requested, "total": total, "free": free}

    torch._C._cuda_attach_out_of_memory_observer(observer)  # cuBLAS' workspaces take a part of the limit below
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((192 << 20) / total)
    model = model_of()
    train(model, looks, steps=1)
    kept = []
    try:
        while True:
            kept.append(torch.empty(9_000_001, dtype=torch.uint8, device="cuda"))
            looks.take("one more")
    except torch.OutOfMemoryError as error:
        looks.error = str(error)
    return written["snapshot"]


def retried(looks):
    """Refused at first, and had once the cache was emptied: no error, and no entry `oom`."""
    record()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((64 << 20) / total)
    for size in (30, 20, 50):
        made = torch.empty(size << 20, dtype=torch.uint8, device="cuda")
        looks.take(f"{size} MiB")
        del made


def state_only(looks):
    record("state")
    train(model_of(), looks, steps=1)


def no_history(looks):
    model = model_of()
    optimizer = train(model, looks, steps=1)
    looks.kept = [torch.empty(n * 100_000, device="cuda") for n in range(1, 6)]
    looks.take("the end")
    del optimizer


def without_stacks(looks):
    record(context=None)
    train(model_of(), looks, steps=1)


def skipped_actions(looks):
    record(skip_actions=["free_requested"])
    train(model_of(), looks, steps=2)


def metadata(looks):
    record()
    name = torch.cuda.memory._set_memory_metadata
    name("weights")
    model = model_of()
    name("training ü")
    train(model, looks, steps=1)
    name("")
    looks.kept = torch.empty(5000, device="cuda")
    looks.take("without a name")


def annotations(looks):
    record(global_record_annotations=True)
    with torch.profiler.record_function("setup"):
        model = model_of()
    for part in ("one", "two"):
        with torch.profiler.record_function(f"part {part}"), torch.profiler.record_function("inner"):
            train(model, looks, steps=1)


def annotated_ring(looks):
    record(global_record_annotations=True, max_entries=100)
    model = model_of()
    for part in range(4):
        with torch.profiler.record_function(f"part {part}"):
            train(model, looks, steps=1)


def pools(looks):
    record()
    model = model_of()
    looks.graph = torch.cuda.CUDAGraph()
    data = torch.randn(BATCH, WIDTH, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        model(data)
    torch.cuda.synchronize()
    with torch.cuda.graph(looks.graph), torch.no_grad():
        looks.kept = model(data)
    looks.take("a graph")
    looks.pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(looks.pool):
        looks.pooled = torch.empty(3_000_000, device="cuda")
    looks.take("a pool")


def two_devices(looks):
    record()
    models = [model_of(f"cuda:{device}") for device in (0, 1)]
    for device in (1, 0, 1):
        with torch.cuda.device(device):
            train(models[device], looks, steps=1, batch=BATCH * (device + 1), device=f"cuda:{device}")


def by_torchs_pickler(looks):
    """As torch::cuda::_memory_snapshot_pickled writes it, which C++ programs and observers use."""
    record()
    train(model_of(), looks, steps=2)
    return snapshot_by_torch()


def snapshot_by_torch():
    """A std::string, returned through a pointer to its place: where it is and its length come first in it."""
    libraries = Path(torch.__file__).parent / "lib"
    call = ctypes.CDLL(str(libraries / "libtorch_cuda.so"))["_ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev"]
    place = (ctypes.c_uint64 * 4)()
    call.argtypes, call.restype = [ctypes.c_void_p], ctypes.c_void_p
    call(ctypes.addressof(place))
    return ctypes.string_at(place[0], place[1])


JOBS = {
    "plain": plain, "stacks-all": stacks_all, "fsdp2": fsdp2, "late": late, "ring": ring, "expandable": expandable,
    "expandable-ring": expandable_ring, "expandable-late": expandable_late, "streams": streams,
    "sizes": blocks_of_all_sizes, "oom": out_of_memory, "retried": retried, "state": state_only, "no-history": no_history,
    "no-stacks": without_stacks, "skipped": skipped_actions, "metadata": metadata, "annotations": annotations,
    "annotated-ring": annotated_ring, "pools": pools, "two-devices": two_devices, "torch-pickler": by_torchs_pickler,
}  # fmt: skip


def segment_sums(snapshot):
    sums = {}
    for segment in snapshot["segments"]:
        told = sums.setdefault(segment["device"], {"segments": 0, "reserved": 0, "allocated": 0, "active": 0})
        told["segments"] += 1
        told["reserved"] += segment["total_size"]
        told["allocated"] += segment["allocated_size"]
        told["active"] += segment["active_size"]
    return sums


def run(name, place):
    """In this process: what the job keeps alive is there when the snapshot is taken."""
    torch.zeros(1, device="cuda")  # the context
    torch.cuda.empty_cache()
    looks = Looks()
    snapshot = JOBS[name](looks)
    if snapshot is None:
        with contextlib.suppress(RuntimeError):
            looks.stats = [Looks._of(device) for device in range(torch.cuda.device_count())]
        snapshot = torch.cuda.memory._snapshot()
    told = {"job": name, "torch": torch.__version__, "python": sys.version.split()[0], "cuda": torch.version.cuda,
            "device": torch.cuda.get_device_name(), "looks": looks.taken}
    for key in ("refused", "error", "stats"):
        if hasattr(looks, key):
            told[key] = getattr(looks, key)
    data = snapshot if isinstance(snapshot, bytes) else pickle.dumps(snapshot)
    if not isinstance(snapshot, bytes):
        told["sums"] = segment_sums(snapshot)
        told["entries"] = [len(entries) for entries in snapshot["device_traces"]]
    (place / f"{name}.pickle.xz").write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    (place / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")
    print(f"{name}: {len(data)} bytes, {(place / f'{name}.pickle.xz').stat().st_size} compressed", flush=True)
    os._exit(0)  # no waiting for what the job left on the device


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", action="append", choices=JOBS)
    parser.add_argument("--here", choices=JOBS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    if arguments.here:
        run(arguments.here, arguments.directory)
    failed = []
    for name in arguments.only or JOBS:
        if name == "two-devices" and torch.cuda.device_count() < 2:
            print(f"{name}: left out, it needs two GPUs", flush=True)
            continue
        environment = os.environ | (EXPANDABLE if name.startswith("expandable") else {})
        command = [sys.executable, __file__, str(arguments.directory), "--here", name]
        if subprocess.run(command, env=environment).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
