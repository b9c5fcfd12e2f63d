"""
Which jobs run in which process, with what environment.

What a process start costs is shared by as many jobs as can. But not under PyTorch's memory trackers: these keep the models
that they have followed, so that what is left of one job would be in the next one's figures. So the lists run without a
tracker, and each of their jobs that has one once more, alone.
"""

import dataclasses

from checks.harness import BUILD
from checks.truth import QUANTITIES


@dataclasses.dataclass(frozen=True)
class Process:
    name: str
    jobs: tuple
    environment: dict = dataclasses.field(default_factory=dict)
    options: tuple = ()
    script: str = "matrix/job.py"
    ends: bool = True  # the ledger's step ends where the job's does, so the values at the end can be compared
    tracks: str = ""  # the list that its job is taken from, to run under a tracker: its row is that job's in the list
    quantities: tuple = QUANTITIES  # those that the ledger can know; the others are to be NULL
    counted_by: str = ""  # PyTorch counts nothing in it: what it requests is known from the same job in the process of this name


def _allocator(name, settings, jobs=("bf16", "varying-lengths"), options=(), **more):
    environment = settings if isinstance(settings, dict) else {"PYTORCH_CUDA_ALLOC_CONF": settings}
    return Process(name, jobs, environment, ("--no-tracker", *options), **more)


def _list(name, jobs, environment=None, untracked=()):
    """The process of a list of jobs, and one for each job that has a tracker: all but those in untracked."""
    environment = environment or {}
    return (
        Process(name, jobs, environment, ("--no-tracker",)),
        *(Process(f"tracked-{job}", (job,), environment, tracks=name) for job in jobs if job not in untracked),
    )


_LISTS = (
    _list(
        "fsdp2-shapes",
        (
            "bf16", "mixed", "mixed-bf16-reduce", "keep-unsharded", "reshard-int", "nested", "root-only", "grouped", "tied",
            "frozen", "lora", "hsdp", "replicate", "explicit-prefetch", "tp-fsdp", "varying-lengths",
        ),
    ),
    _list(
        "fsdp2-loops",
        (
            # First, because the companion does not look for copies of every model of a process that makes many.
            "second-model",
            "recompute-wrapper", "recompute-composable", "recompute-function", "recompute-nested", "accumulate",
            "accumulate-no-sync", "adamw-foreach", "adamw-fused", "adamw-forloop", "sgd", "clip", "zero-grad-to-zero",
            "eval-no-grad", "checkpoint-state-dict", "checkpoint-dcp", "module-called-twice", "forward-exception",
            "offload",
        ),
        untracked=("accumulate-no-sync", "forward-exception", "offload"),
    ),
    # All modules are selected, because MemTracker shows all.
    _list(
        "unsharded",
        ("plain", "plain-autocast", "plain-recompute", "ddp", "ddp-bucket-view", "tp", "cuda-graph", "mempool", "pinned"),
        {"SHARDLEDGER_MODULES": "all"},
        untracked=("tp", "cuda-graph", "mempool", "pinned"),
    ),
)  # fmt: skip

PROCESSES = (
    # The long ones first, so that none of them is the last to end.
    *(processes[0] for processes in _LISTS),
    Process("fsdp1", ("fsdp1-orig-params", "fsdp1-flat"), options=("--no-tracker",)),
    # These have rules of their own for where a step begins or ends.
    Process("optimizer-in-backward", ("optimizer-in-backward",), ends=False),
    Process("no-optimizer-class", ("no-optimizer-class",), ends=False),
    Process("zero-grad-last", ("zero-grad-last",)),
    Process("compiled-blocks", ("compiled-blocks",)),
    Process(
        "late-attach",
        ("late-attach",),
        {"SHARDLEDGER_PYTHON": "off", "PYTHONPATH": str(BUILD / "lib" / "python")},
    ),
    Process("hf-trainer", ("hf-trainer",), {"HF_HUB_OFFLINE": "1"}, script="matrix/hugging_face.py"),
    Process("hf-accelerate", ("hf-accelerate",), {"HF_HUB_OFFLINE": "1"}, script="matrix/hugging_face.py"),
    _allocator("expandable-segments", "expandable_segments:True", ("bf16", "varying-lengths", "mixed", "offload")),
    _allocator("max-split-size", "max_split_size_mb:32"),
    _allocator("roundup-power2", "roundup_power2_divisions:4"),
    _allocator("garbage-collection", "garbage_collection_threshold:0.6", options=("--memory", "512")),
    _allocator("cuda-malloc-async", "backend:cudaMallocAsync", quantities=("allocated", "active")),
    _allocator(
        "no-caching", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, ("bf16",), quantities=("allocated", "active"), counted_by="fsdp2-shapes"
    ),
    *(process for processes in _LISTS for process in processes[1:]),
)


def selected(names):
    """The processes with the jobs that are named, by their own name or by their process's; all without names."""
    known = {process.name for process in PROCESSES} | {name for process in PROCESSES for name in process.jobs}
    unknown = sorted(set(names) - known)
    if unknown:
        raise ValueError(f"no job or process is named {unknown[0]}; --list names them")
    chosen = []
    for process in PROCESSES:
        if not names or process.name in names:
            chosen.append(process)
        elif process.script == "matrix/job.py" and not process.environment:
            jobs = tuple(name for name in process.jobs if name in names)
            if jobs:
                chosen.append(dataclasses.replace(process, jobs=jobs))
        elif set(names) & set(process.jobs) and "SHARDLEDGER_MODULES" in process.environment:
            chosen.append(dataclasses.replace(process, jobs=tuple(name for name in process.jobs if name in names)))
    return chosen
