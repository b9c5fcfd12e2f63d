"""Small runs of what changes the memory's shape; the ones that are recorded for tests/data."""

import shutil
import zlib

from .harness import MIB, Result
from .reference import check_job

SMALL = ["--steps", 4, "--layers", 4, "--width", 512, "--vocabulary", 8000, "--sequence", 512]
RECORD_LIMIT = 2 * MIB  # of one recorded run as the repository packs it: segments that nobody sealed are mostly zeros

# Other shapes are jobs of scripts/truth-matrix. name: (script, options, environment, whether FSDPMemTracker can follow). It follows no CPU offload.
VARIANTS = {
    "small": ("fsdp2_train.py", [], {}, True),
    "mixed-precision": ("fsdp2_train.py", ["--mixed-precision"], {}, True),
    "recompute": ("fsdp2_train.py", ["--recompute", "--mixed-precision"], {}, True),
    "offload": ("fsdp2_train.py", ["--offload"], {}, False),
    "expandable": ("fsdp2_train.py", [], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, False),
}


def check_variant(harness, name, record=None):
    script, options, environment, tracked = VARIANTS[name]
    options = [*SMALL, *options, "--truth", "truth", *(["--tracker"] if tracked else [])]
    run = harness.train(name, script, options, environment=environment)
    if record:
        yield keep(run, record / ("fsdp2-2rank" if name == "small" else f"fsdp2-2rank-{name}"))
    yield from check_job(name, run, harness.ranks, tracked)


def keep(run, destination):
    """Copies the logs, without the ledger that comes of them, and the truth files beside them."""
    shutil.rmtree(destination, ignore_errors=True)
    shutil.copytree(run.directory, destination, ignore=shutil.ignore_patterns("ledger.sqlite*"))
    for path in run.truth.parent.glob(f"{run.truth.name}.*rank*"):
        shutil.copy(path, destination)
    files = [path.read_bytes() for path in destination.rglob("*") if path.is_file()]
    size, packed = sum(map(len, files)), sum(len(zlib.compress(file)) for file in files)
    figure = f"{size / MIB:.2f} MiB in {destination.name}, {packed / MIB:.2f} MiB packed"
    return Result(f"{run.name}: record", packed <= RECORD_LIMIT, figure)
