"""Predictions: a recorded run, changed by 'shardledger whatif', against what PyTorch said of a run that had the change."""

import csv
import io
import json
import shutil
from dataclasses import dataclass

from . import once
from .harness import ROOT, CheckFailed, shardledger

DATA = ROOT / "tests" / "data"
QUANTITIES = ("requested", "allocated", "reserved")
COUNTS = ("figures", "exact", "equal", "worst", "bounds", "held", "estimates", "within", "farthest")

EXPANDABLE, WHOLE, ROUNDED = "expandable_segments:True", "max_split_size_mb:32", "roundup_power2_divisions:4"
COLLECTED = "garbage_collection_threshold:0.6"
DEFAULT = "expandable_segments:False"


MANY = 1 << 30  # as many as there are


@dataclass(frozen=True)
class Pair:
    """base, with the options, should take what target took, on all ranks: in so many steps, from these on in both."""

    base: str
    options: tuple
    target: str
    steps: int
    base_from: int = 0
    target_from: int = 0
    jobs: tuple = ()  # of several in one process: their names
    figures: tuple = QUANTITIES

    @property
    def name(self):
        return f"{self.base_name} with {self.change} is {self.target_name}"

    @property
    def base_name(self):
        return self.jobs[0] if self.jobs else self.base.rpartition("/")[2]

    @property
    def target_name(self):
        return self.jobs[1] if self.jobs else self.target.rpartition("/")[2]

    @property
    def kind(self):
        """What is changed: the option; several of them are "combined"."""
        beside = ("--at", "--steps", "--memory-limit", "--recorded-limit", "--no-sync")
        named = [option for option in self.options if option.startswith("--")]
        changes = [option for option in named if option not in beside] or named[:1]
        return changes[0] if len(changes) == 1 else "combined"

    @property
    def change(self):
        return " ".join(self.options)


def _allocator_pairs():
    """The same jobs under each setting of the allocator, from each run to each other one. The default run goes on with others."""
    settings = {
        "matrix/expandable-segments": EXPANDABLE,
        "matrix/max-split-size": WHOLE,
        "matrix/roundup-power2": ROUNDED,
        "matrix/garbage-collection": COLLECTED,
        "matrix/fsdp2-shapes": DEFAULT,
    }
    for base in settings:
        for target, setting in settings.items():
            if base != target:
                limits = ("--memory-limit", "512MiB") if setting == COLLECTED else ()
                if settings[base] == COLLECTED:
                    limits = ("--recorded-limit", "512MiB", "--memory-limit", "140GiB")  # the others have none
                steps = 3 if "matrix/fsdp2-shapes" in (base, target) else 6
                yield Pair(base, ("--alloc-conf", setting, *limits), target, steps)


def _first_step(run, job):
    """The first step of one of a process's jobs, counted over the jobs before it."""
    with open(DATA / run / "truth.rank0", encoding="utf-8") as file:
        jobs = [told["job"] for told in map(json.loads, file) if "step" in told]
    return jobs.index(job)


def _optimizer_pairs():
    """Four jobs of one process that differ in their optimizer: from each to each other one."""
    first = {job: _first_step("matrix/fsdp2-loops", job) for job in ("adamw-foreach", "adamw-fused", "adamw-forloop", "sgd")}  # of three
    for base, base_from in first.items():
        for target, target_from in first.items():
            if base != target:
                options = ("--optimizer", target.replace("-foreach", ""), "--steps", f"{base_from}-{base_from + 2}")
                yield Pair("matrix/fsdp2-loops", options, "matrix/fsdp2-loops", 3, base_from, target_from, (base, target))


def _reshard_pairs():
    """A job of one process without its first step: there cuBLAS's workspaces are new, which the other job finds in place."""
    run, names = "matrix/fsdp2-shapes", ("bf16", "keep-unsharded")
    yield Pair(run, ("--reshard", "off", "--steps", "0-2"), run, 2, 1, 10, names)


def _recompute_pairs():
    """Two ranks with NCCL: the reference workload with mixed precision, and with recomputation, too. And jobs of one process, of
    which the second one finds the workspaces of the first."""
    yield Pair("fsdp2-2rank-mixed-precision", ("--recompute", "all"), "fsdp2-2rank-recompute", 4)
    yield Pair("fsdp2-2rank-recompute", ("--recompute", "none"), "fsdp2-2rank-mixed-precision", 4)
    run, names = "matrix/unsharded", ("plain-recompute", "plain")
    yield Pair(run, ("--recompute", "none"), run, 2, 7, 1, names, ("requested", "allocated"))


def _scale_pairs():
    """Batches; and lengths, of which each run has several: its second step, longer, is as another one of the same run."""
    for kind in ("one", "ranks4"):
        batches = {"1": kind, "2": f"{kind}-batch2", "3": f"{kind}-batch3"}
        for factor, at in (("3", "2"), ("3/2", "1/2"), ("2/3", "1/3"), ("2", "3")):
            base = {"3": "1", "3/2": "2", "2/3": "3", "2": "1"}[factor]
            other = {"2": "2", "1/2": "1", "1/3": "1", "3": "3"}[at]
            target = {"3": "3", "3/2": "3", "2/3": "2", "2": "2"}[factor]
            yield Pair(f"predictions/{batches[base]}", ("--batch", factor, "--at", f"{at}={batches[other]}"),
                       f"predictions/{batches[target]}", MANY)  # fmt: skip
        runs = ("--at", f"2={kind}-sequence2", "--at", f"3={kind}-sequence3")
        for factor, run, step in (("1.5", kind, 4), ("1.25", kind, 3), ("2.5", f"{kind}-sequence2", 3), ("4", f"{kind}-sequence2", 2)):
            yield Pair(f"predictions/{kind}", ("--sequence", factor, *runs), f"predictions/{run}", 1, 1, step,
                       figures=("requested", "allocated"))  # fmt: skip


def _recorded_pairs():
    """What tests/gpu/prediction/record.py recorded on one GPU."""
    listed = DATA / "predictions" / "pairs.json"
    for pair in json.loads(listed.read_text()) if listed.exists() else ():
        yield Pair(f"predictions/{pair['base']}", tuple(pair["options"]), f"predictions/{pair['target']}", MANY)


PAIRS = (*_allocator_pairs(), *_optimizer_pairs(), *_reshard_pairs(), *_recompute_pairs(), *_scale_pairs(), *_recorded_pairs())


def truth_steps(run):
    """{rank: [row of each step, in order]}."""
    found = {}
    for path in sorted((DATA / run).glob("truth.rank*")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found[int(path.name.removeprefix("truth.rank"))] = [row for row in rows if "requested_peak" in row]
    return found


def ran_out(run):
    """Whether PyTorch said that it ran out of memory."""
    return any("out_of_memory" in line for path in (DATA / run).glob("truth.rank*") for line in path.read_text().splitlines())


def ingest(run, scratch):
    """A copy with its ledger, once."""
    copy = scratch / run.replace("/", "-")
    if not copy.exists():
        shutil.copytree(DATA / run, copy)
    return copy


def arguments(pair, scratch):
    """Its options, with other runs where they lie."""
    for option in pair.options:
        factor, is_run, run = option.partition("=")
        yield f"{factor}={ingest('predictions/' + run, scratch)}" if is_run else option


def predict(pair, scratch):
    """{rank: [{quantity: (low, high, standing)} of each step, in order]}."""
    copy = ingest(pair.base, scratch)
    output = shardledger("whatif", copy, *arguments(pair, scratch), "--by", "period", "--csv")
    found = {}
    for row in csv.DictReader(io.StringIO(output)):
        if row["kind"] != "step":
            continue
        steps = found.setdefault(int(row["rank"]), {})
        low = int(row["after_bytes"]) if row["after_bytes"] else None
        high = int(row["after_most_bytes"]) if row["after_most_bytes"] else low
        steps.setdefault(int(row["step"]), {})[row["figure"]] = (low, high, row["standing"])
    return {rank: [steps[number] for number in sorted(steps)] for rank, steps in found.items()}


def compare(pair, scratch):
    """{quantity: how many figures, exact ones and equal, bounds and held, estimates and within, how far the farthest of each}.
    docs/prediction.md and the tests ask for the same pairs: asked once."""
    return once.answer(f"prediction {pair}", lambda: compared(pair, scratch))


def compared(pair, scratch):
    predicted, truth = predict(pair, scratch), truth_steps(pair.target)
    found = {quantity: dict.fromkeys(COUNTS, 0) for quantity in pair.figures}
    for rank, rows in truth.items():
        # Of one rank each it is these: at the same place in a larger HSDP group a rank has another number.
        (steps,) = predicted.values() if len(predicted) == len(truth) == 1 else (predicted[rank],)
        check_end(pair, steps, len(rows) + ran_out(pair.target))
        for step, row in enumerate(rows[pair.target_from : pair.target_from + pair.steps]):
            for quantity in pair.figures:
                if pair.base_from + step < len(steps):
                    count(found[quantity], row[f"{quantity}_peak"], *steps[pair.base_from + step][quantity])
                else:  # no play got so far
                    found[quantity]["figures"] += 1
                    found[quantity]["estimates"] += 1
    return found


def check_end(pair, steps, expected):
    """All of it: the step that runs out of memory is predicted, too, and has no truth. An estimate may end elsewhere."""
    is_estimate = any(standing == "estimate" for _, _, standing in steps[-1].values())
    if pair.steps == MANY and len(steps) != expected and not is_estimate:
        raise CheckFailed(f"{pair.name}: {len(steps)} steps are predicted, and there were {expected}")


def count(one, truth, low, high, standing):
    off = max(low - truth, truth - high, 0)
    one["figures"] += 1
    if standing == "exact":
        one["exact"] += 1
        one["equal"] += low == high == truth
        one["worst"] = max(one["worst"], abs(low - truth))
    elif standing == "bound":
        one["bounds"] += 1
        one["held"] += off == 0
    elif standing == "estimate":
        one["estimates"] += 1
        one["within"] += off == 0
        one["farthest"] = max(one["farthest"], off)


def is_proven(found):
    """Every exact figure is equal, every bound holds, the rest are estimates, and there are some."""
    return all(
        one["figures"] == one["exact"] + one["bounds"] + one["estimates"] > 0
        and one["exact"] == one["equal"]
        and one["bounds"] == one["held"]
        for one in found.values()
    )


def total(many):
    """The counts of several pairs together, by quantity."""
    none = dict.fromkeys(COUNTS, 0)
    return {
        quantity: {
            name: (max if name in ("worst", "farthest") else sum)(found.get(quantity, none)[name] for found in many)
            for name in COUNTS
        }
        for quantity in QUANTITIES
    }


def words(one):
    """'12 of 12 exact', '9 of 9 exact, 2 of 3 estimates, 1.5 MiB off'."""
    parts = []
    if one["exact"]:
        parts.append(f"{one['equal']} of {one['exact']} exact")
    if one["bounds"]:
        parts.append(f"{one['held']} of {one['bounds']} bounds hold")
    if one["estimates"]:
        parts.append(f"{one['within']} of {one['estimates']} estimates")
    if one["farthest"]:
        parts.append(f"{one['farthest'] / (1 << 20):.2f} MiB off")
    return ", ".join(parts)
