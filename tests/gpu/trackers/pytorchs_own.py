"""Runs PyTorch's own tests of its memory trackers with ShardLedger's in their place, and their tolerances at zero.

    SHARDLEDGER_MODULES=all shardledger run -o DIR -- \\
        python tests/gpu/trackers/pytorchs_own.py [--group nccl|fake] [--world N] [--theirs] [-k NAME] FILE …

FILE: test_mem_tracker.py, test_fsdp2_mem_tracker.py (test/distributed/_tools) or test_fully_shard_memory.py
(test/distributed/_composable/fsdp) of PyTorch 2.11's sources, unmodified; they are in no wheel. What is changed is changed from
here, before they are loaded:
  - torch.distributed._tools' MemTracker and FSDPMemTracker are ShardLedger's (not with --theirs, for a comparison),
  - assertAlmostEqual has no delta: what the tracker says is what the allocator counts, or the test fails,
  - tests of several processes run in this one: as the only rank of a NCCL group, or as rank 0 of N that only pretend,
  - test_fully_shard_memory asks a tracker instead of torch.cuda.memory_stats, which is compared with that each time.

Prints a line a test; exits 1 where one fails.
"""

import argparse
import gc
import importlib.util
import os
import pathlib
import socket
import sys
import types
import unittest

os.environ.setdefault("SHARDLEDGER_MODULES", "all")

try:  # torch.testing._internal wants it for expected outputs, which these tests have none of
    import expecttest  # noqa: F401
except ImportError:
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed._tools.fsdp2_mem_tracker as fsdp2_mem_tracker  # noqa: E402
import torch.distributed._tools.mem_tracker as mem_tracker  # noqa: E402
from torch.testing._internal import common_distributed, common_fsdp, common_utils  # noqa: E402


def put_ours():
    import shardledger

    mem_tracker.MemTracker = shardledger.MemTracker
    fsdp2_mem_tracker.FSDPMemTracker = shardledger.FSDPMemTracker


def without_tolerance():
    loose = unittest.TestCase.assertAlmostEqual

    def exact(self, first, second, places=None, msg=None, delta=None):
        print(f"{first!r} for {second!r}", end=" ")
        loose(self, first, second, msg=msg, delta=0 if delta is not None else None, places=places)

    unittest.TestCase.assertAlmostEqual = exact


def in_this_process(group, world):
    """A test that would start a process for each rank runs here, as rank 0."""

    def run(self, test):
        def wrapper():
            self.rank = 0
            torch.cuda.set_device(0)
            if group == "fake":
                from torch.testing._internal.distributed.fake_pg import FakeStore

                dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
            else:
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
                dist.init_process_group("nccl", init_method=address, rank=0, world_size=1)
            try:
                common_utils.set_rng_seed()
                test()
            finally:
                dist.destroy_process_group()

        return wrapper

    common_distributed.MultiProcessTestCase.join_or_run = run
    common_distributed.MultiProcessTestCase._spawn_processes = lambda self, *_: None
    common_distributed.skip_if_lt_x_gpu = lambda *_, **__: lambda test: test


def ask_a_tracker(module, tracker_class):
    """test_fully_shard_memory's two questions go to a tracker, which is entered as the test begins, and again where it resets the
    allocator's peaks. Each answer is held against the allocator's."""
    case = module.TestFullyShardMemory
    reset, state = torch.cuda.reset_peak_memory_stats, {}
    device = torch.device("cuda", 0)

    def enter():
        state["before"] = torch.cuda.memory_stats()["allocated_bytes.all.current"]
        reset()
        state["tracker"] = tracker_class()
        state["tracker"].__enter__()

    def leave():
        if "tracker" in state:
            state.pop("tracker").__exit__(None, None, None)

    def answer(self, kind, key):
        total = state["tracker"].get_tracker_snapshot(kind).get(device, {}).get("Total", 0) + state["before"]
        truth = torch.cuda.memory_stats()[key]
        print(f"{total} for {truth}", end=" ")
        self.assertEqual(total, truth)
        return round(total / 1e6)

    def reset_both(*arguments):
        if "tracker" in state:
            leave()
            enter()
        reset(*arguments)

    whole = case._test_fully_shard_training_memory

    def with_tracker(self, **options):
        gc.collect()  # what an earlier one left is not to be freed while the tracker counts
        torch.cuda.empty_cache()
        enter()
        try:
            whole(self, **options)
        finally:
            leave()

    torch.cuda.reset_peak_memory_stats = reset_both
    case._test_fully_shard_training_memory = with_tracker
    case._get_peak_active_memory_mb = lambda self: answer(self, "peak", "allocated_bytes.all.peak")
    case._get_curr_active_memory_mb = lambda self: answer(self, "current", "allocated_bytes.all.current")


def load(path):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main():
    p = argparse.ArgumentParser()
    p.add_argument("files", nargs="+", metavar="FILE")
    p.add_argument("--group", choices=("nccl", "fake"), default="nccl")
    p.add_argument("--world", type=int, default=2)
    p.add_argument("--theirs", action="store_true", help="leave PyTorch's trackers, and the tests' own tolerances")
    p.add_argument("-k", dest="pattern", help="only tests whose name has this in it")
    a = p.parse_args()
    torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
    if not a.theirs:
        put_ours()
        without_tolerance()
    in_this_process(a.group, a.world)
    suite, loader = unittest.TestSuite(), unittest.TestLoader()
    if a.pattern:
        loader.testNamePatterns = [f"*{a.pattern}*"]
    for path in a.files:
        module = load(path)
        if hasattr(module, "TestFullyShardMemory") and not a.theirs:
            ask_a_tracker(module, mem_tracker.MemTracker)
        for case in vars(module).values():
            if isinstance(case, type) and issubclass(case, common_fsdp.FSDPTest):
                case.world_size = a.world if a.group == "fake" else 1
        suite.addTests(loader.loadTestsFromModule(module))
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main())
