"""What the oracle's second half is made of: the names and rules of phases, and phases, periods, allocations, what is held."""

import collections
import re

from oracle_log import ROOT

KINDS = dict(enumerate(("none step forward backward recompute unshard unshard_copy_out reshard reduce prefetch optimizer_step"
                        " zero_grad input checkpoint eval user record_function load save generate").split()))
NEVER = float("inf")


def phase_rules():
    """[(prefix, kind, point)] of the table in docs/categories.md."""
    text = (ROOT / "docs/categories.md").read_text()
    table = text[text.index("<!-- generated: phase rules -->") :]
    return re.findall(r"^\| `(.+?)` \| `(\w+)` \| (?:`(\w+)`)? *\|$", table[: table.index("<!-- end -->")], re.M)


RULES = phase_rules()


OF_LIBRARIES = ("gloo:", "nccl:", "enumerate(DataLoader)", "Optimizer.", "DistributedDataParallel.")


def is_named(phase):
    """Whether a range says what the program does."""
    return phase.kind in ("eval", "load", "save", "generate") or phase.kind == "user" and not phase.name.startswith(OF_LIBRARIES)


class Phase:
    def __init__(self, ordinal, kind, name, point, module, start, ns, parent):
        self.ordinal, self.kind, self.name, self.point, self.module = ordinal, kind, name, point, module
        self.start, self.ns, self.parent, self.end, self.end_ns = start, ns, parent, NEVER, None

    def around(self):
        phase = self
        while phase:
            yield phase
            phase = phase.parent


class Period:
    """A stretch of the rank's life: what happens after the instant at which it began, until that at which it ended. A step begins
    right before its own range."""

    def __init__(self, number, kind, step, began, ns, sums):
        self.number, self.kind, self.step, self.began, self.ns = number, kind, step, began, ns
        self.peaks, self.name = sums, None


class Allocation:
    free = complete = NEVER
    free_ns = free_phase = last_step = None
    restored = False

    def __init__(self, device, address, start, ns, ordinal, phase, step, stream, period=0):
        self.device, self.address, self.start, self.ns, self.ordinal = device, address, start, ns, ordinal
        self.phase, self.step, self.stream, self.period = phase, step, stream, period
        self.tags = []  # (instant, category, module, name)


class Held:
    """What is allocated at an instant: in all, by owner, of each module, and of each with those below it."""

    def __init__(self):
        self.total, self.held, self.own, self.below = 0, collections.Counter(), collections.Counter(), collections.Counter()

    def by_category(self):
        categories = collections.Counter()
        for (category, _, _), size in self.held.items():
            categories[category] += size
        return {category: size for category, size in categories.items() if size}
