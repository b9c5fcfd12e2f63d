"""The largest batch that 'shardledger advise' says to fit, against what PyTorch said of the same job with several batches.

Recorded runs tell without a GPU: a batch that was recorded does not fit in less than it allocated, and it does in what it reserved
and its largest request: under a limit PyTorch takes no segment for a request that is larger than what is left, not even where a part
of an expandable one is free already.
tests/data/predictions/batches.jsonl has more: jobs under a limit, each with the largest batch that was said to fit and with those
beside it (tests/gpu/advice/batches.py).
"""

import functools
import json
import shutil
from dataclasses import dataclass

from . import once
from .harness import ROOT, shardledger

DATA = ROOT / "tests" / "data" / "predictions"
KINDS = ("one", "ranks4")
RUNS = {4: "{}", 8: "{}-batch2", 12: "{}-batch3"}  # by their batch
PLENTY = 120 << 30
TRIED = DATA / "batches.jsonl"


@dataclass(frozen=True)
class Told:
    """A kind of job whose batches are told by these two runs."""

    kind: str
    own: int
    other: int

    @property
    def name(self):
        return f"{self.kind}, batches {self.own} and {self.other}"


TOLD = tuple(Told(kind, *batches) for kind in KINDS for batches in ((4, 8), (4, 12), (8, 12)))


def run_of(kind, batch, scratch):
    """A copy with its ledger, once."""
    name = RUNS[batch].format(kind)
    copy = scratch / name
    if not copy.exists():
        shutil.copytree(DATA / name, copy)
    return copy


def ask(told, budget, scratch):
    other = f"{told.other}={run_of(told.kind, told.other, scratch)}"
    options = ("--batch", str(told.own), "--at", other, "--budget", str(budget), "--json")
    return json.loads(shardledger("advise", run_of(told.kind, told.own, scratch), *options))["batch"][0]


@functools.cache
def outside(told, scratch):
    """What is not PyTorch's."""
    return PLENTY - ask(told, PLENTY, scratch)["limit_bytes"]


def largest(told, limit, scratch):
    """Of a process that may have so much, which a budget is not: that counts what is not PyTorch's, too."""
    row = ask(told, limit + outside(told, scratch), scratch)
    assert row["limit_bytes"] == limit
    return row["largest_batch"]


def highest(kind, batch, figure):
    """What PyTorch said of the whole recorded run with this batch."""
    rows = map(json.loads, (DATA / RUNS[batch].format(kind) / "truth.rank0").read_text().splitlines())
    return max(row[f"{figure}_peak"] for row in rows if "step" in row)


def largest_request(kind, batch, scratch):
    sql = "SELECT max(requested_bytes) AS bytes FROM allocation"
    return json.loads(shardledger("query", sql, run_of(kind, batch, scratch), "--json"))[0]["bytes"]


def recorded_rows(scratch):
    """Of each recorded batch: the largest that is said to fit where this one does, and where it does not. docs/prediction.md and the
    tests ask for the same ones: asked once."""
    for told in TOLD:
        for batch in RUNS:
            yield told, batch, *once.answer(f"batch {batch} of {told}", lambda told=told, batch=batch: said(told, batch, scratch))


def said(told, batch, scratch):
    roomy = highest(told.kind, batch, "reserved") + largest_request(told.kind, batch, scratch)
    tight = highest(told.kind, batch, "allocated") - 1
    return largest(told, roomy, scratch), largest(told, tight, scratch)


def tried():
    """{(kind, limit): (what was said, {batch: whether the job survived})}."""
    found = {}
    for line in TRIED.read_text().splitlines() if TRIED.exists() else ():
        row = json.loads(line)
        said, ends = found.setdefault((row["kind"], row["limit"]), (row["said"], {}))
        ends[row["batch"]] = row["end"] == "survived"
    return found
