"""One job's figures in the ledger against PyTorch's: the steps to the byte, the categories near the memory trackers'.

The job counts its steps for itself, so steps of it and of the ledger are brought together by time: the range of the ledger's
step began while the job's peaks counted for this step. Where none did (a loop that the ledger has no end of a step for), the
steps that one of the ledger's encloses are compared with it as one: the highest peak, the last end.
"""

import dataclasses
import json
import math

from checks.tracker import ABSOLUTE, RELATIVE
from checks.truth import QUANTITIES

WHOLE = 0.999  # of the allocated bytes at each step's peak are to be attributed


@dataclasses.dataclass
class Row:
    """What is known of one job: a row of the table."""

    job: str
    process: str
    steps: int = 0  # of all ranks
    compared: int = 0  # peaks
    equal: int = 0
    ends_compared: int = 0
    ends_equal: int = 0
    attributed: "float | None" = None  # least share of a step's peak
    tracker_rows: int = 0
    tracker_near: int = 0
    tracker_off: list = dataclasses.field(default_factory=list)  # (difference, key, ledger, tracker) of those that are not near
    differences: list = dataclasses.field(default_factory=list)
    notes: list = dataclasses.field(default_factory=list)
    error: str = ""
    skipped: str = ""
    tried: bool = False  # on a CPU, where nothing is to be compared

    @property
    def exact(self):
        """True, False; None where nothing was to be compared."""
        if self.error:
            return False
        if self.skipped or self.tried:
            return None
        return bool(self.compared) and not self.differences


def read_lines(pattern):
    """The JSON lines of the truth files; a last line that a kill cut off is left out."""
    rows = []
    for path in sorted(pattern.parent.glob(pattern.name)):
        rows += [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return rows


@dataclasses.dataclass
class Step:
    """A step of the ledger; the times are its range's, which begins with the step's own work."""

    number: int
    start_ns: int
    end_ns: float
    checked: "int | None"
    figures: dict


def read_steps(ledger):
    """{rank: [Step]} in order."""
    columns = [(q, when) for when in ("peak", "end") for q in QUANTITIES]
    names = ", ".join(f"{when}_{quantity}_bytes" for quantity, when in columns)
    query = f"""SELECT s.rank, s.step, phase.start_ns, phase.end_ns, checked, {names}
                FROM step AS s JOIN phase ON phase.rank = s.rank AND phase.step = s.step AND kind = 'step'
                ORDER BY s.rank, s.step"""
    steps = {}
    for rank, number, start, end, checked, *values in ledger.execute(query):
        figures = {f"{quantity}_{when}": value for (quantity, when), value in zip(columns, values)}
        end = math.inf if end is None else end
        steps.setdefault(rank, []).append(Step(number, start, end, checked, figures))
    return steps


def match(rows, steps):
    """[([truth rows], [ledger steps])] of one rank: together what can only be compared as one."""
    groups = []
    for row in sorted(rows, key=lambda row: row["start_ns"]):
        mine = [step for step in steps if row["since_ns"] <= step.start_ns <= row["end_ns"]]
        mine = mine or [step for step in steps if step.start_ns <= row["start_ns"] <= step.end_ns]
        if groups and any(step in groups[-1][1] for step in mine):
            groups[-1][0].append(row)
            groups[-1][1].extend(step for step in mine if step not in groups[-1][1])
        else:
            groups.append(([row], mine))
    return groups


def known(values):
    values = [value for value in values if value is not None]
    return max(values) if values else None


def compare_bytes(row, rank, group, process):
    truths, steps = group
    where = f"rank {rank} step {truths[0]['step']}"
    if len(truths) > 1 or len(steps) > 1:
        row.notes.append(f"{len(truths)} steps of the job are {len(steps)} of the ledger's")
    for quantity in QUANTITIES:
        peak, last = f"{quantity}_peak", f"{quantity}_end"
        pairs = [(peak, max(truth[peak] for truth in truths), known(step.figures[peak] for step in steps))]
        if process.ends:
            pairs.append((last, truths[-1][last], steps[-1].figures[last] if steps else None))
        for what, want, got in pairs:
            if quantity not in process.quantities:
                if got is not None:
                    row.differences.append((where, f"{what}, which nothing tells", None, got))
                continue
            if what == peak:
                row.compared += 1
                row.equal += got == want
            else:
                row.ends_compared += 1
                row.ends_equal += got == want
            if got != want:
                row.differences.append((where, what, want, got))
    failed = [step.number for step in steps if step.checked == 0]
    if failed:
        row.differences.append((where, "the replay's own check", 1, 0))


def compare_attribution(row, ledger, rank, steps):
    for step in steps:
        categories = dict(
            ledger.execute("SELECT category, bytes FROM category_at_peak WHERE rank = ? AND step = ?", (rank, step.number))
        )
        total, peak = sum(categories.values()), step.figures["allocated_peak"]
        if total != peak:
            row.notes.append(f"rank {rank}: categories add up to {total} of {peak} B at a peak")
        if peak:
            share = 1 - (categories.get("unattributed", 0) + max(0, peak - total)) / peak
            row.attributed = share if row.attributed is None else min(row.attributed, share)


VIEWS = {"fsdp": "fsdp_snapshot", "module": "module_snapshot"}


def models_in(ledger, kind, rank, step):
    """{root's id: whether its backward ran} of the models with snapshots in the step."""
    query = f"""SELECT root_id, max(s.state IN ('Before Pre-Backward', 'Pre-Backward')) FROM {VIEWS[kind]} AS s
                JOIN module ON module.id = module_id WHERE s.rank = ? AND s.step = ? GROUP BY root_id"""
    return dict(ledger.execute(query, (rank, step)))


def read_snapshots(ledger, kind, rank, step, models):
    """{(fqn, call, state): {word: bytes}} in the words of the tracker of that kind; of the models that are trained."""
    snapshots = {}
    query = f"""SELECT root_id, s.fqn, call, state, category, bytes FROM {VIEWS[kind]} AS s
                JOIN module ON module.id = module_id WHERE s.rank = ? AND s.step = ?"""
    for root, fqn, call, state, category, size in ledger.execute(query, (rank, step)):
        if models[root] or not any(models.values()):
            snapshots.setdefault((fqn, call, state), {})[category] = size
    return snapshots


def compare_tracker(row, ledger, rank, tracked, steps):
    kind, snapshots = tracked["tracker"], {}
    for step in steps:
        models = models_in(ledger, kind, rank, step.number)
        snapshots.update(read_snapshots(ledger, kind, rank, step.number, models))
    missing = 0
    for fqn, state, call, words in tracked["snapshots"]:
        have = snapshots.get((fqn, call, state))
        missing += have is None
        for word, size in words.items():
            row.tracker_rows += 1
            if have is None:
                continue
            difference = abs(have.get(word, 0) - size)
            if difference <= max(RELATIVE * size, ABSOLUTE):
                row.tracker_near += 1
            else:
                row.tracker_off.append((difference, f"rank {rank} {fqn} {state} {call} {word}", have.get(word, 0), size))
    row.tracker_off.sort(key=lambda off: (-off[0], off[1]))
    if missing:
        row.notes.append(f"rank {rank}: {missing} of {len(tracked['snapshots'])} module states missing")


def counted_elsewhere(lines, prefix, process):
    """The truth of a process in which PyTorch counts nothing: each tensor is a driver allocation of just the bytes that the
    same step of the same job requests where PyTorch counts. None where that was not run."""
    counted = read_lines(prefix.parent.parent / process.counted_by / f"{prefix.name}.rank*")
    requested = {(line["job"], line["rank"], line["step"]): line for line in counted if "requested_peak" in line}
    found = []
    for line in lines:
        if "requested_peak" in line:
            other = requested.get((line["job"], line["rank"], line["step"]))
            if other is None:
                return None
            line = {**line, **{f"{q}_{when}": other[f"requested_{when}"] for q in QUANTITIES for when in ("peak", "end")}}
        found.append(line)
    return found


def compare_process(process, prefix, ledger):
    """A Row for each of the process's jobs. ledger: None where none could be made."""
    lines = read_lines(prefix.with_name(prefix.name + ".rank*"))
    trackers = read_lines(prefix.with_name(prefix.name + ".tracker.rank*"))
    elsewhere = counted_elsewhere(lines, prefix, process) if process.counted_by else lines
    uncounted, lines = elsewhere is None, elsewhere or lines
    steps = read_steps(ledger) if ledger else {}
    rows = []
    for name in process.jobs:
        row = Row(name, process.tracks or process.name)
        rows.append(row)
        mine = [line for line in lines if line["job"] == name]
        truths = [line for line in mine if "start_ns" in line]
        row.steps = len(truths)
        row.error = next((line["error"] for line in mine if "error" in line), "")
        row.skipped = next((line["skipped"] for line in mine if "skipped" in line), "")
        if uncounted:
            row.skipped = f"PyTorch counts nothing here, and {process.counted_by} has not been run before"
        row.notes += sorted({line["note"] for line in mine if "note" in line})
        if not row.error and not row.skipped and not any("done" in line for line in mine):
            row.error = "broke off" if mine else "did not begin"
        row.tried = bool(truths) and "allocated_peak" not in truths[0]
        if row.tried or row.skipped:
            continue
        if ledger is None:
            row.error = row.error or "no ledger"
            continue
        untold = sorted(steps.keys() - {line["rank"] for line in truths})
        if untold and not row.error:
            row.error = f"no truth of rank {untold[0]}"
        for rank in sorted({line["rank"] for line in truths}):
            groups = match([line for line in truths if line["rank"] == rank], steps.get(rank, []))
            for group in groups:
                compare_bytes(row, rank, group, process)
                compare_attribution(row, ledger, rank, group[1])
            for tracked in (line for line in trackers if line["job"] == name and line["rank"] == rank):
                found = [group[1] for group in groups if any(truth["step"] == tracked["step"] for truth in group[0])]
                compare_tracker(row, ledger, rank, tracked, found[0] if found else [])
        unknown = [quantity for quantity in QUANTITIES if quantity not in process.quantities]
        if unknown:
            row.notes.append(f"not known: {', '.join(unknown)}")
        if row.attributed is not None and row.attributed < WHOLE:
            row.notes.append(f"below {100 * WHOLE}% attributed")
        row.notes = list(dict.fromkeys(row.notes))
    return rows


def joined(rows):
    """The rows with those of one job in a list and under the tracker as one, in the order of their first."""
    one = {}
    for row in rows:
        key = row.job, row.process
        one[key] = _join(one[key], row) if key in one else row
    return list(one.values())


def _join(a, b):
    """Adds up what was compared. What is wrong with one is wrong with both."""
    counts = ("steps", "compared", "equal", "ends_compared", "ends_equal", "tracker_rows", "tracker_near")
    shares = [row.attributed for row in (a, b) if row.attributed is not None]
    return dataclasses.replace(
        a,
        **{name: getattr(a, name) + getattr(b, name) for name in counts},
        attributed=min(shares, default=None),
        tracker_off=sorted(a.tracker_off + b.tracker_off, key=lambda off: (-off[0], off[1])),
        differences=a.differences + b.differences,
        notes=list(dict.fromkeys(a.notes + b.notes)),
        error=a.error or b.error,
        skipped=a.skipped or b.skipped,
        tried=a.tried or b.tried,
    )
