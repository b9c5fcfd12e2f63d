"""What two trackers and PyTorch's allocator said of one job, point by point. Nothing here has a tolerance.

exact    the allocator counts it: totals, now, at the highest point, and where modules begin and end
sum      an answer's categories add up to its total
owner    PyTorch's tracker says the same: what has an owner (parameters, buffers, gradients, optimizer state) between the phases
states   the same modules, states and calls
label    rows of modules' states that PyTorch's tracker has under another word or not at all: shown, and no mistake (docs/integrations.md)
"""

import dataclasses

OWNERS = {
    "module": ("Parameter", "Buffer", "Gradient", "Optstate"),
    "fsdp": ("Sharded Param", "Unsharded Param", "Buffer", "Sharded Grad", "OptState"),
}
# In these states backward has not begun, or has ended: nothing is on its way from one word to another there.
SETTLED = ("Pre-Forward", "Post-Forward", "Before Pre-Forward", "After Post-Forward")
SHOWN = 4  # of the labels that differ


@dataclasses.dataclass
class Row:
    check: str
    where: str
    ours: object
    truth: object

    @property
    def passed(self):
        return self.check == "label" or self.ours == self.truth


def _sums(where, snapshot):
    yield Row("sum", where, snapshot.get("Total"), sum(size for word, size in snapshot.items() if word != "Total"))


def compare(kind, ours, theirs, blocks_are_requests=True):
    """Rows. blocks_are_requests: no block of the job is larger than its request rounded up, so owners are equal to the byte."""
    rows = []
    for point, snapshot in ours.current.items():
        rows.append(Row("exact", f"Total, {point}", snapshot.get("Total"), ours.allocated[point]))
        rows += _sums(point, snapshot)
        for word in OWNERS[kind] if blocks_are_requests else ():
            rows.append(Row("owner", f"{word}, {point}", snapshot.get(word), theirs.current[point].get(word)))
    if kind == "fsdp":  # while the model is called, what FSDP casts them to are inputs, too: a label
        rows += [Row("owner", f"Inputs, {point}", ours.current[point].get("Inputs"), theirs.current[point].get("Inputs"))
                 for point in ("entered", "cleared")]
    rows.append(Row("exact", "Total, peak", ours.peak.get("Total"), ours.allocated_peak))
    rows += _sums("peak", ours.peak)
    for missing in sorted(ours.modules.keys() ^ theirs.modules.keys()):
        has = "ours only" if missing in ours.modules else "PyTorch's only"
        rows.append(Row("states", " ".join(map(str, missing)), has, "both"))
    for key in sorted(ours.modules.keys() & theirs.modules.keys()):
        where, mine, other = " ".join(map(str, key)), ours.modules[key], theirs.modules[key]
        rows += _sums(where, mine)
        if blocks_are_requests and key[1] in SETTLED:
            rows += [Row("owner", f"{word}, {where}", mine.get(word), other.get(word)) for word in OWNERS[kind]
                     if word != "Unsharded Param"]  # Activation until the pre-forward has ended: a label
        rows += [Row("label", f"{word}, {where}", mine.get(word, 0), other.get(word, 0))
                 for word in sorted(mine.keys() | other.keys()) if mine.get(word, 0) != other.get(word, 0)]
    if blocks_are_requests:
        rows += [Row("owner", f"{what}, {name}", ours.members[name][place], theirs.members[name][place])
                 for name in sorted(ours.members.keys() & theirs.members.keys())
                 for place, what in enumerate(("parameter_mem", "buffer_mem", "input_mem", "output_mem"))]
    for (name, state, call), allocated in ours.hooks.items():
        # fully_shard renames classes, and the wrapper of a module has its states.
        found = [snapshot for (fqn, s, c), snapshot in ours.modules.items()
                 if (s, c) == (state, call) and fqn.removeprefix("FSDP") == name.removeprefix("FSDP")]
        if found:
            rows.append(Row("exact", f"Total, {name} {state} {call}", found[0].get("Total"), allocated))
    return rows


def table(name, rows):
    """Lines: a count of each check, the rows that failed, and the labels that differ most."""
    lines = []
    for check in ("exact", "sum", "owner", "states", "label"):
        of = [row for row in rows if row.check == check]
        if of and check != "label":
            lines.append(f"{name:24} {check:7} {sum(row.passed for row in of):5} of {len(of):5}")
            lines += [f"    {row.where}: {row.ours}, and the truth is {row.truth}" for row in of if not row.passed][:20]
        elif of:
            lines.append(f"{name:24} label   {len(of):5} other words")
            worst = sorted(of, key=lambda row: -abs(row.ours - row.truth))[:SHOWN]
            lines += [f"    {row.where}: {row.ours}, PyTorch's tracker {row.truth}" for row in worst]
    return lines
