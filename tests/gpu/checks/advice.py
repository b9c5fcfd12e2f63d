"""Advice: what 'shardledger advise' says of recorded jobs that ran out of memory, against the same jobs with each change.

tests/data/advice/CASE holds a recorded run and outcomes.jsonl: of each change that was tried under the same limit, how the job
ended and the rows that it printed, of PyTorch's own figures (tests/gpu/advice/outcomes.py).
"""

import functools
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import once
from .harness import ROOT, shardledger

DATA = ROOT / "tests" / "data" / "advice"
CASES = sorted(path.parent.name for path in DATA.glob("*/outcomes.jsonl"))
QUANTITIES = {"requested": ("requested_after", "requested_standing"), "allocated": ("after", "standing"),
              "reserved": ("reserved_after", "reserved_standing")}  # their columns
TO_THE_END = ("yes", "life", "while")  # said to get to the end of what is known of the job
NO_CLAIM = ("no", "hardly", "refused")  # nothing that one would take


@dataclass(frozen=True)
class Figure:
    """A quantity's highest value, as predicted and as measured."""

    low: int
    high: int
    is_bound: bool  # at least low
    measured: int

    @property
    def off(self):
        """So many bytes outside of what was said."""
        return max(self.low - self.measured, 0 if self.is_bound else self.measured - self.high, 0)

    def __str__(self):
        if self.off:
            return f"{self.off:,} B off"
        if self.is_bound:
            return "holds"
        return f"within {self.high - self.low:,} B" if self.high > self.low else "0 B off"


@dataclass(frozen=True)
class Outcome:
    """A change: what was said of it, and what came of it."""

    change: str
    item: dict  # of the command's table; None: it said nothing of this change
    goal: dict
    end: str  # survived, out of memory; "": not tried
    rows: tuple  # that the job printed

    @property
    def fits(self):
        return self.item["fits"] if self.item else ""

    @property
    def steps(self):
        """A job of one step (rows of 'what') has ended it where it survived."""
        in_steps = [row for row in self.rows if "step" in row]
        return in_steps or [{**row, "step": 0} for row in self.rows if "what" in row and self.end == "survived"]

    @property
    def figures(self):
        """{quantity: Figure} of the steps that the prediction is of, where the job got to their end."""
        first, last = self.goal["from_step"] or 0, self.goal["step"]
        chosen = [row for row in self.steps if last is not None and first <= row["step"] <= last]
        found = {}
        if not self.item or not chosen or chosen[-1]["step"] != last:
            return found
        for quantity, (column, standing) in QUANTITIES.items():
            low = self.item[f"{column}_bytes"]
            if low is not None and f"{quantity}_peak" in chosen[0]:
                is_bound = self.item[standing] == "bound" and self.goal["rest"] == "unknown"  # else of both ends
                found[quantity] = Figure(low, self.item[f"{column}_most_bytes"] or low, is_bound,
                                         max(row[f"{quantity}_peak"] for row in chosen))
        return found


@functools.cache
def ask(case, place=DATA):
    """What the command says of a recorded run, of a case as a rule."""
    return once.answer(f"advice {place / case}", lambda: asked(case, place))


def asked(case, place):
    with tempfile.TemporaryDirectory() as scratch:
        return json.loads(shardledger("advise", shutil.copytree(place / case, Path(scratch) / case), "--json"))


def suffices(case):
    """something, unknown (nothing is known to be enough), nothing"""
    return ask(case)["goal"][0]["suffices"]


def outcomes(case):
    """Every change that it says something of, in its order, then the others that were tried."""
    answer = ask(case)
    tried = {one["change"]: one for one in map(json.loads, (DATA / case / "outcomes.jsonl").read_text().splitlines())}
    items = {item["advice"]: item for item in answer["advice"]}
    found = []
    for change in (*items, *sorted(tried.keys() - items)):
        came = tried.get(change, {"end": "", "rows": ()})
        found.append(Outcome(change, items.get(change), answer["goal"][0], came["end"], tuple(came["rows"])))
    return found


# ---- as docs/advice.md shows them ----


def said_words(one):
    """What was said of it: whether it fits, and how that is known."""
    predicted = one.item["standing"] != "not predicted"
    return one.item["fits_words"] + (f", {one.item['standing']}" if predicted and one.item["after_bytes"] is not None else "")


def came_words(one):
    if one.end == "out of memory":
        return f"died in step {one.steps[-1]['step'] + 1}" if one.fits == "while" else "died"
    return one.end or "not tried"


def names(found):
    return ", ".join(f"`{one.change}`" for one in found) or "–"


def first_cells(case, first):
    """The first advice, what was said of it, and what came of it; or that there is none."""
    words = {"nothing": "nothing is enough", "unknown": "nothing is known to be enough"}.get(suffices(case))
    if words:
        return "none", words, "nothing survived"
    return f"`{first.change}`", said_words(first), came_words(first)


def case_row(case):
    """The first advice of a case, and what else was tried."""
    found = outcomes(case)
    first, tried = found[0], [one for one in found if one.end]
    unsaid = [one for one in tried if one.end == "survived" and (not one.item or one.fits in NO_CLAIM)]
    return (f"`{case}`", *first_cells(case, first), len(tried), sum(one.end == "survived" for one in tried), names(unsaid))


def change_rows(case):
    """Of each change that it says something of."""
    for one in outcomes(case):
        if one.item and one.fits != "refused":
            figures = [str(one.figures.get(quantity, "–")) for quantity in QUANTITIES]
            yield f"`{case}`", f"`{one.change}`", said_words(one), came_words(one), *figures
