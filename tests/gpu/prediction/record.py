"""Records job.py in many ways on one GPU, several at a time, for the pairs of docs/prediction.md.

    python tests/gpu/prediction/record.py DIR [--jobs N] [--only NAME|jobs]…
    python tests/gpu/prediction/record.py DIR --pairs

DIR/NAME gets each run's logs and truth.rank…, what PyTorch said; DIR/pairs.json says what was changed between them; with --pairs nothing
is recorded, and those of the runs that DIR has are added. Limits are parts of what the run without one reserved.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COMMAND = Path(os.environ.get("SHARDLEDGER_BUILD_DIR") or ROOT / "build" / "release").resolve() / "bin" / "shardledger"
NO_WORKSPACES = {"CUBLAS_WORKSPACE_CONFIG": ":0:0", "CUBLASLT_WORKSPACE_SIZE": "0"}
CONFIGS = {
    "expandable": "expandable_segments:True",
    "split": "max_split_size_mb:24",
    "rounded": "roundup_power2_divisions:[16:2,64:8,>:4]",
    "split-rounded": "max_split_size_mb:48,roundup_power2_divisions:8",
    "segments": "large_segment_size_mb:32",
}
COLLECTED = "garbage_collection_threshold:0.5"
OPTIMIZERS = ("adamw", "adamw-fused", "adamw-forloop", "sgd")


@dataclass
class Run:
    name: str
    job: tuple = ()
    config: str = ""
    environment: dict = field(default_factory=dict)
    part: float = 0  # of the reserved bytes of the run without a limit
    of: str = ""


def runs(kind, job):
    """The ways of one kind of job."""
    yield Run(kind, job)
    for name, config in CONFIGS.items():
        yield Run(f"{kind}-{name}", job, config)
    for optimizer in OPTIMIZERS[1:]:
        yield Run(f"{kind}-{optimizer}", (*job, "--optimizer", optimizer))
    yield Run(f"{kind}-no-workspaces", job, environment=NO_WORKSPACES)
    yield Run(f"{kind}-expandable-fused", (*job, "--optimizer", "adamw-fused"), CONFIGS["expandable"])
    limits = {
        "limit-95": (0.95, ""), "limit-85": (0.85, ""), "limit-70": (0.7, ""),
        "limit-85-expandable": (0.85, CONFIGS["expandable"]), "limit-85-split": (0.85, CONFIGS["split"]),
        "limit-90-collected": (0.9, COLLECTED),
    }  # fmt: skip
    for name, (part, config) in limits.items():
        yield Run(f"{kind}-{name}", job, config, part=part, of=kind)


SHARDED = ("--world", "4")
SETTINGS = (
    *runs("plain", ()),
    *runs("sharded", SHARDED),
    Run("sharded-keep", (*SHARDED, "--keep")),
    Run("sharded-keep-fused-expandable", (*SHARDED, "--keep", "--optimizer", "adamw-fused"), CONFIGS["expandable"]),
)

# Jobs that differ in what they do. With expandable segments no figure depends on addresses, so that all are compared to the byte.
JOBS = {
    "one": "", "one-micro2": "--micro 2", "one-micro3": "--micro 3",
    "one-recompute": "--recompute all", "one-recompute1": "--recompute 1",
    "one-batch2": "--batch 2", "one-batch3": "--batch 3", "one-sequence2": "--sequence 2", "one-sequence3": "--sequence 3",
    "one-chunks2": "--chunks 2", "one-chunks4": "--chunks 4", "one-sgd": "--optimizer sgd", "one-host": "--optimizer host",
    "one-swap": "--swap", "ranks4-swap": "--world 4 --swap",
    **{f"ranks{n}": f"--world {n}" for n in (1, 2, 4, 7, 8, 64, 1024)},
    "ranks2-second": "--world 2 --rank 1", "ranks7-second": "--world 7 --rank 1",
    "ranks8-seventh": "--world 8 --rank 6", "ranks7-seventh": "--world 7 --rank 6",
    "ranks4-sgd": "--world 4 --optimizer sgd", "ranks8-sgd": "--world 8 --optimizer sgd",
    **{f"mixed{n}": f"--world {n} --mixed" for n in (1, 2, 4, 8, 64)},
    **{f"hsdp2x{n}": f"--world {2 * n} --replicas 2" for n in (2, 4, 8)},
    "hsdp4x4": "--world 16 --replicas 4", "hsdp2x4-seventh": "--world 8 --replicas 2 --rank 6",
    "hsdp2x8-eleventh": "--world 16 --replicas 2 --rank 10", "hsdp2x4-mixed": "--world 8 --replicas 2 --mixed",
    "ranks4-micro2": "--world 4 --micro 2", "ranks4-micro3": "--world 4 --micro 3",
    "ranks4-nosync2": "--world 4 --micro 2 --no-sync", "ranks4-nosync3": "--world 4 --micro 3 --no-sync",
    "mixed4-micro2": "--world 4 --mixed --micro 2", "mixed4-nosync2": "--world 4 --mixed --micro 2 --no-sync",
    "ranks4-recompute": "--world 4 --recompute all", "ranks4-recompute1": "--world 4 --recompute 1",
    "ranks4-keep": "--world 4 --keep", "ranks4-reshard2": "--world 4 --reshard 2", "ranks8-keep": "--world 8 --keep",
    "ranks8-reshard4": "--world 8 --reshard 4",
    "ranks4-batch2": "--world 4 --batch 2", "ranks4-batch3": "--world 4 --batch 3",
    "ranks4-sequence2": "--world 4 --sequence 2", "ranks4-sequence3": "--world 4 --sequence 3",
    "one-loss4": "--loss-chunks 4", "one-loss8": "--loss-chunks 8", "one-loss8-batch2": "--loss-chunks 8 --batch 2",
    "ranks4-loss4": "--world 4 --loss-chunks 4", "mixed4-loss4": "--world 4 --mixed --loss-chunks 4",
    "ranks4-chunks4": "--world 4 --chunks 4", "ranks4-offload": "--world 4 --offload",
    "one-inbackward": "--in-backward", "one-sgd-inbackward": "--in-backward --optimizer sgd",
    "one-fused-inbackward": "--in-backward --optimizer adamw-fused",
    "one-recompute-inbackward": "--in-backward --recompute all",
    "ranks1-inbackward": "--world 1 --in-backward", "ranks4-inbackward": "--world 4 --in-backward",
    "ranks7-inbackward": "--world 7 --in-backward", "ranks4-sgd-inbackward": "--world 4 --in-backward --optimizer sgd",
    "ranks4-recompute-inbackward": "--world 4 --in-backward --recompute all",
    "one-host-inbackward": "--in-backward --optimizer host", "one-loss8-inbackward": "--in-backward --loss-chunks 8",
    "ranks4-loss4-inbackward": "--world 4 --in-backward --loss-chunks 4",
    "mixed4-inbackward": "--world 4 --mixed --in-backward", "hsdp2x2-inbackward": "--world 4 --replicas 2 --in-backward",
}  # fmt: skip
# With what operators use, in every step.
FOLLOWED = {
    "one-followed": "", "one-recompute-followed": "--recompute all",
    "ranks4-followed": "--world 4", "ranks4-recompute-followed": "--world 4 --recompute all",
}  # fmt: skip
DEFAULT = {"default2": "--world 2", "default8": "--world 8", "plain-inbackward": "--in-backward"}  # and these without
RUNS = (
    *SETTINGS,
    *(Run(name, tuple(job.split()), CONFIGS["expandable"]) for name, job in JOBS.items()),
    *(Run(name, tuple(job.split()), CONFIGS["expandable"], {"SHARDLEDGER_STACKS": "all"}) for name, job in FOLLOWED.items()),
    *(Run(name, tuple(job.split())) for name, job in DEFAULT.items()),
)


def rows(out):
    return [json.loads(line) for path in out.glob("truth.rank*") for line in path.read_text().splitlines()]


def rank_of(run):
    return run.job[run.job.index("--rank") + 1] if "--rank" in run.job else "0"


def record(run, place):
    out, limit = place / run.name, ()
    if run.part:
        reserved = max((row.get("reserved_peak", 0) for row in rows(place / run.of)), default=0)
        limit = ("--limit", str(int(run.part * reserved)))
    environment = {**os.environ, **run.environment}
    if run.config:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = run.config
    job = [sys.executable, Path(__file__).with_name("job.py"), *run.job, *limit]
    done = subprocess.run([COMMAND, "run", "-o", out, "--", *map(str, job)], capture_output=True, text=True, env=environment)
    out.mkdir(exist_ok=True)
    (out / f"truth.rank{rank_of(run)}").write_text("".join(line + "\n" for line in done.stdout.splitlines() if line.startswith('{"')))
    if not rows(out):
        (out / "said.txt").write_text(done.stdout[-4000:] + done.stderr[-4000:])
    for ledger in out.glob("*.sqlite*"):
        ledger.unlink()
    return run.name, rows(out)


def limit_of(place, run):
    return next((str(row["limit"]) for row in rows(place / run.name) if "limit" in row), "0")


def pairs(place, recorded):
    """Each change alone, and both ways where the other way can be asked for."""
    for kind in ("plain", "sharded"):
        of_kind = {run.name: run for run in recorded if run.name == kind or run.name.startswith(kind + "-")}
        states = {f"{kind}-{name}" for name in CONFIGS} | {kind}
        by_optimizer = {kind: "adamw", **{f"{kind}-{name}": name for name in OPTIMIZERS[1:]}}
        for base in of_kind:
            for target, run in of_kind.items():
                if base == target:
                    continue
                options = None
                if base in states and target in states:
                    options = ["--alloc-conf", run.config or "expandable_segments:False"]
                elif base in by_optimizer and target in by_optimizer:
                    options = ["--optimizer", by_optimizer[target]]
                elif base == kind and target.endswith("no-workspaces"):
                    options = ["--no-workspaces"]
                elif base == kind and target.endswith("-keep"):
                    options = ["--reshard", "off"]
                elif base == kind and target.endswith("-keep-fused-expandable"):
                    options = ["--reshard", "off", "--optimizer", "adamw-fused", "--alloc-conf", run.config]
                elif base == kind and target.endswith("expandable-fused"):
                    options = ["--optimizer", "adamw-fused", "--alloc-conf", run.config]
                elif base == kind and run.part:
                    options = ["--memory-limit", limit_of(place, run)]
                    options += ["--alloc-conf", run.config] if run.config else []
                if options:
                    yield {"base": base, "options": options, "target": target}


RANKS = {"ranks": (2, 4, 7, 8, 64, 1024), "mixed": (2, 4, 8, 64), "default": (2, 8)}


def job_pairs():
    """(base, options, target) of JOBS and DEFAULT."""
    for kind, sizes in RANKS.items():
        for base in sizes:
            for target in sizes:
                if base != target and (kind == "default" or base in (4, 8) or target == 4):
                    yield f"{kind}{base}", f"--world-size {target}", f"{kind}{target}"
    for base in (2, 4, 8, 64):
        yield f"ranks{base}", "--world-size 1", "ranks1"
    yield "ranks2-second", "--world-size 7", "ranks7-second"
    yield "ranks8-seventh", "--world-size 7", "ranks7-seventh"
    yield "ranks7-seventh", "--world-size 8", "ranks8-seventh"
    yield "ranks4-sgd", "--world-size 8", "ranks8-sgd"
    yield "ranks4-keep", "--world-size 8", "ranks8-keep"
    for base in (2, 4, 8):
        for target in (2, 4, 8):
            if base != target:
                yield f"hsdp2x{base}", f"--world-size {2 * target}", f"hsdp2x{target}"
    yield "hsdp4x4", "--world-size 32", "hsdp2x8"
    yield "hsdp2x4-seventh", "--world-size 16", "hsdp2x8-eleventh"
    yield "hsdp2x4", "--mixed-precision bf16", "hsdp2x4-mixed"
    for kind in ("one", "ranks4"):
        yield kind, "--recompute all", f"{kind}-recompute"
        yield kind, "--recompute blocks.1", f"{kind}-recompute1"
        yield f"{kind}-recompute", "--recompute none", kind
        yield f"{kind}-recompute1", "--recompute none", kind
        yield f"{kind}-followed", "--recompute all", f"{kind}-recompute"
        yield f"{kind}-recompute-followed", "--recompute none", kind
    yield "ranks8", "--world-size 4 --recompute all", "ranks4-recompute"
    for times in (2, 3):
        yield "one", f"--accumulate {times}", f"one-micro{times}"
        yield "ranks4", f"--accumulate {times}", f"ranks4-micro{times}"
        yield "ranks4", f"--accumulate {times} --no-sync", f"ranks4-nosync{times}"
        yield "one-followed", f"--accumulate {times}", f"one-micro{times}"
        yield "ranks4-followed", f"--accumulate {times} --no-sync", f"ranks4-nosync{times}"
    yield "mixed4", "--accumulate 2", "mixed4-micro2"
    for ranks in (2, 4, 8, 64):
        yield f"ranks{ranks}", "--mixed-precision bf16", f"mixed{ranks}"
    yield "mixed4", "--mixed-precision fp32", "ranks4"
    yield "ranks8", "--world-size 4 --mixed-precision bf16", "mixed4"
    yield "one", "--loss-chunks 4", "one-loss4"
    yield "one", "--loss-chunks 8", "one-loss8"
    yield "one-batch2", "--loss-chunks 8", "one-loss8-batch2"
    yield "ranks4", "--loss-chunks 4", "ranks4-loss4"
    yield "mixed4", "--loss-chunks 4", "mixed4-loss4"
    for base in ("one", "one-sgd", "one-recompute", "ranks1", "ranks4", "ranks7", "ranks4-sgd", "ranks4-recompute", "mixed4",
                 "hsdp2x2"):  # fmt: skip
        yield base, "--optimizer-in-backward", f"{base}-inbackward"
    yield "one-followed", "--optimizer-in-backward", "one-inbackward"
    yield "one", "--optimizer sgd --optimizer-in-backward", "one-sgd-inbackward"
    yield "one", "--optimizer adamw-fused --optimizer-in-backward", "one-fused-inbackward"
    yield "one", "--recompute all --optimizer-in-backward", "one-recompute-inbackward"
    yield "one", "--optimizer host --optimizer-in-backward", "one-host-inbackward"
    yield "one", "--loss-chunks 8 --optimizer-in-backward", "one-loss8-inbackward"
    yield "ranks4", "--loss-chunks 4 --optimizer-in-backward", "ranks4-loss4-inbackward"
    yield "one-loss8", "--optimizer-in-backward", "one-loss8-inbackward"
    yield "ranks4-loss4", "--optimizer-in-backward", "ranks4-loss4-inbackward"
    yield "plain", "--optimizer-in-backward", "plain-inbackward"
    yield "ranks8", "--world-size 4 --optimizer-in-backward", "ranks4-inbackward"
    yield "ranks8", "--world-size 4 --optimizer-in-backward --recompute all", "ranks4-recompute-inbackward"
    yield "one", "--offload-optimizer", "one-swap"
    yield "one", "--optimizer host", "one-host"
    yield "one-sgd", "--optimizer host", "one-host"
    yield "ranks4", "--offload-optimizer", "ranks4-swap"
    yield "ranks8", "--world-size 4 --offload-optimizer", "ranks4-swap"
    yield "mixed8", "--world-size 4 --accumulate 2", "mixed4-micro2"
    yield "ranks8", "--world-size 4 --accumulate 3 --no-sync", "ranks4-nosync3"
    yield "ranks4", "--reshard 2", "ranks4-reshard2"
    yield "ranks8", "--reshard 4", "ranks8-reshard4"
    yield "ranks4", "--world-size 8 --reshard 4", "ranks8-reshard4"
    yield "ranks64", "--world-size 4 --reshard 2", "ranks4-reshard2"
    yield "ranks4-keep", "--reshard on", "ranks4"
    yield "ranks8-keep", "--reshard on", "ranks8"
    yield "ranks8-keep", "--reshard on --world-size 4", "ranks4"
    yield "ranks8-keep", "--reshard on --world-size 4 --recompute all", "ranks4-recompute"
    yield "ranks8-keep", "--reshard on --world-size 4 --accumulate 3", "ranks4-micro3"
    yield "sharded-keep", "--reshard on", "sharded"
    yield "ranks4", "--world-size 8 --optimizer sgd", "ranks8-sgd"
    yield "ranks4", "--world-size 8 --reshard off", "ranks8-keep"
    yield "ranks8", "--world-size 4 --optimizer sgd", "ranks4-sgd"
    yield "ranks8", "--world-size 4 --reshard off", "ranks4-keep"


def pairs_write(place, chosen, known=()):
    names = {run.name for run in chosen}
    found = list(pairs(place, chosen))
    found += [{"base": base, "options": change.split(), "target": target}
              for base, change, target in job_pairs() if base in names and target in names]
    found = [*known, *(pair for pair in found if pair not in known)]
    (place / "pairs.json").write_text(json.dumps(found, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("place", type=Path)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--only", action="append")
    parser.add_argument("--pairs", action="store_true")
    options = parser.parse_args()
    options.place.mkdir(parents=True, exist_ok=True)
    if options.pairs:
        known = json.loads((options.place / "pairs.json").read_text())
        return pairs_write(options.place, [run for run in RUNS if (options.place / run.name).is_dir()], known)
    chosen = [run for run in RUNS if not options.only or run.name in options.only or ("jobs" in options.only and run not in SETTINGS)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for wave in (False, True):  # limits are parts of what the others reserve
            now = [run for run in chosen if bool(run.part) == wave]
            for name, found in pool.map(lambda run: record(run, options.place), now):
                print(name, f"{len(found)} lines", found[-1] if found else "NOTHING", flush=True)
    pairs_write(options.place, chosen)


if __name__ == "__main__":
    main()
