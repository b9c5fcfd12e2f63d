"""What two trackers and PyTorch's allocator said of one job, point by point. Nothing here has a tolerance.

exact    the allocator counts it: totals, now, at the highest point, and where modules' forwards begin and end
sum      an answer's categories add up to its total
owner    the allocator's blocks of the tensors that model and optimizer hold
tracker  PyTorch's tracker says the same of them, once what blocks have more than their requests is taken away; and of a module's
         inputs and outputs
states   the same modules, states and calls
label    rows of modules' states that PyTorch's tracker has under another word or not at all: shown, and no mistake (docs/integrations.md)
"""

import dataclasses

from tracker_observed import OWNERS

# In these states backward has not begun, or has ended: nothing is on its way from one word to another there.
SETTLED = ("Pre-Forward", "Post-Forward", "Before Pre-Forward", "After Post-Forward")
SHOWN = 4  # of the labels that differ
CHECKS = ("exact", "sum", "owner", "tracker", "states", "label")


@dataclasses.dataclass
class Row:
    check: str
    where: str
    ours: object
    truth: object

    @property
    def passed(self):
        return self.check == "label" or self.ours == self.truth


def _sum(where, snapshot):
    return Row("sum", where, snapshot.get("Total"), sum(size for word, size in snapshot.items() if word != "Total"))


def _points(kind, ours, theirs):
    for point, snapshot in ours.current.items():
        yield Row("exact", f"Total, {point}", snapshot.get("Total"), ours.allocated[point])
        yield _sum(point, snapshot)
        for word in OWNERS[kind]:
            blocks, requests = ours.owners[point][word]
            yield Row("owner", f"{word}, {point}", snapshot.get(word), blocks)
            yield Row("tracker", f"{word}, {point}", snapshot.get(word, 0) - (blocks - requests), theirs.current[point].get(word))
    if kind == "fsdp":  # while the model is called, what FSDP casts them to are inputs, too: a label
        for point in ("entered", "cleared"):
            yield Row("tracker", f"Inputs, {point}", ours.current[point].get("Inputs"), theirs.current[point].get("Inputs"))
    yield Row("exact", "Total, peak", ours.peak.get("Total"), ours.allocated_peak)
    yield _sum("peak", ours.peak)


def _modules(kind, ours, theirs):
    for missing in sorted(ours.modules.keys() ^ theirs.modules.keys()):
        yield Row("states", " ".join(map(str, missing)), "ours only" if missing in ours.modules else "PyTorch's only", "both")
    for key in sorted(ours.modules.keys() & theirs.modules.keys()):
        where, mine, other = " ".join(map(str, key)), ours.modules[key], theirs.modules[key]
        yield _sum(where, mine)
        for word in OWNERS[kind] if key[1] in SETTLED else ():
            blocks, requests = ours.owners["forward"][word]
            yield Row("tracker", f"{word}, {where}", mine.get(word, 0) - (blocks - requests), other.get(word))
        for word in sorted(mine.keys() | other.keys()):
            if mine.get(word, 0) != other.get(word, 0):
                yield Row("label", f"{word}, {where}", mine.get(word, 0), other.get(word, 0))


def _hooks(ours):
    for (name, state, call), allocated in ours.hooks.items():
        # fully_shard renames classes, and the wrapper of a module has its states.
        found = [snapshot for (fqn, s, c), snapshot in ours.modules.items()
                 if (s, c) == (state, call) and fqn.removeprefix("FSDP") == name.removeprefix("FSDP")]
        if found:
            yield Row("exact", f"Total, {name} {state} {call}", found[0].get("Total"), allocated)


def _members(ours, theirs):
    are_even = all(blocks == requests for point in ours.owners.values() for blocks, requests in point.values())
    for name in sorted(ours.members.keys() & theirs.members.keys()):
        for place, what in enumerate(("parameter_mem", "buffer_mem", "input_mem", "output_mem")):
            if are_even or place > 1:
                yield Row("tracker", f"{what}, {name}", ours.members[name][place], theirs.members[name][place])


def compare(kind, ours, theirs):
    return [*_points(kind, ours, theirs), *_modules(kind, ours, theirs), *_hooks(ours), *_members(ours, theirs)]


def table(name, rows):
    """Lines: a count of each check, the rows that failed, and the labels that differ most."""
    lines = []
    for check in CHECKS:
        of = [row for row in rows if row.check == check]
        if of and check != "label":
            lines.append(f"{name:24} {check:7} {sum(row.passed for row in of):5} of {len(of):5}")
            lines += [f"    {row.where}: {row.ours}, and the truth is {row.truth}" for row in of if not row.passed][:20]
        elif of:
            lines.append(f"{name:24} label   {len(of):5} other words")
            worst = sorted(of, key=lambda row: -abs(row.ours - row.truth))[:SHOWN]
            lines += [f"    {row.where}: {row.ours}, PyTorch's tracker {row.truth}" for row in worst]
    return lines
