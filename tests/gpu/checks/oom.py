"""Jobs that run out of memory: the ledger says where, why, and what was alive, to the byte and in PyTorch's own figures."""

import re

from .harness import MIB, Result, attempt, shardledger
from .variants import keep

JOBS = {  # name: (options, kind of the phase that must be around the refused request)
    "forward": (["--where", "forward"], "forward"),
    "backward": (["--where", "backward"], "backward"),
    "optimizer": (["--where", "optimizer"], "optimizer_step"),
    "leak": (["--leak"], None),
}


def check_oom(harness, name, record=None):
    options, kind = JOBS[name]
    with harness.started(f"oom-{name}", "oom_job.py", options) as (process, run):
        harness.end(process, run)
    write_errors(run)
    if record:
        yield keep(run, record / f"oom-{name}-2rank")
    text = shardledger("oom", run.directory)
    (harness.out / f"oom-{name}.txt").write_text(text)
    with run.ledger() as ledger:
        yield refused(name, ledger, run.status, kind, text)
        yield attempt(f"oom {name}: as PyTorch says", lambda: as_pytorch_says(name, read_errors(run.truth), ledger))
    yield attempt(f"oom {name}: PyTorch's message", lambda: message_in(name, read_errors(run.truth), text))
    if name == "leak":
        survivors = shardledger("survivors", run.directory)
        (harness.out / "oom-leak-survivors.txt").write_text(survivors)
        yield grows("oom leak: survivors", survivors)


def grows(name, text):
    """Whether 'shardledger survivors' says that the job grows, and by how much."""
    lines = [line for line in text.splitlines() if line.startswith("Grows ")]
    return Result(name, bool(lines), lines[0] if lines else "no growth was found")


LIMIT = ["--limit", "1.7"]


def check_fix(harness, record=None):
    """docs/tutorial.md's fix: a job that a limit is too small for, and the same one with its loss in chunks, which fits."""
    with harness.started("oom-limit", "oom_job.py", LIMIT) as (process, before):
        harness.end(process, before)
    write_errors(before)
    if record:
        yield keep(before, record / "oom-limit-2rank")
    text = shardledger("oom", before.directory)
    (harness.out / "oom-limit.txt").write_text(text)
    with before.ledger() as ledger:
        yield attempt("oom limit", lambda: refused("limit", ledger, before.status, "backward", text))
        yield attempt("oom limit: as PyTorch says", lambda: as_pytorch_says("limit", read_errors(before.truth), ledger))
    yield attempt("oom limit: PyTorch's message", lambda: message_in("limit", read_errors(before.truth), text))
    after = harness.train("oom-limit-fixed", "oom_job.py", [*LIMIT, "--loss-chunks", 8])
    if record:
        yield keep(after, record / "oom-limit-fixed-2rank")
    yield attempt("oom fixed: commands", lambda: check_said(harness, before, after))
    with after.ledger() as ledger:
        steps, peak = ledger.execute("SELECT count(*), max(peak_allocated_bytes) FROM step").fetchone()
        unclean = ledger.execute("SELECT count(*) FROM rank WHERE clean_exit IS NOT 1").fetchone()[0]
    figure = f"{steps} steps of {harness.ranks} ranks under the same limit, highest peak {(peak or 0) / MIB:.1f} MiB"
    yield Result("oom fixed", steps == 4 * harness.ranks and not unclean, figure)


def check_said(harness, before, after):
    """What the tutorial's reader asks then: what changed, and whether it keeps a budget that it did not keep."""
    (harness.out / "oom-limit-diff.txt").write_text(shardledger("diff", before.directory, after.directory))
    text = shardledger("check", after.directory, "--max-peak", "1.5GiB")
    (harness.out / "oom-limit-check.txt").write_text(text)
    return Result("oom fixed: commands", True, (text.strip().splitlines() or ["no words"])[-1])


def refused(name, ledger, status, kind, text):
    """The job failed, each request has its phase, and who held memory adds up to what was allocated."""
    rows = ledger.execute("SELECT rank, at_ns, requested_bytes, allocated_bytes, phase_id FROM oom").fetchall()
    wrong = []
    for rank, at_ns, _, allocated, phase in rows:
        held = ledger.execute("SELECT sum(bytes) FROM oom_owner WHERE rank = ? AND at_ns = ?", (rank, at_ns)).fetchone()[0]
        if held != allocated:
            wrong.append(f"rank {rank}: owners hold {held} of {allocated} B")
        if kind and kind not in kinds_around(ledger, phase):
            wrong.append(f"rank {rank}: not in {kind}")
    sizes = ", ".join(f"{row[2] / (1 << 20):.1f} MiB" for row in rows)
    figure = f"exit {status}; {len(rows)} requests refused ({sizes})" + (f"; {'; '.join(wrong)}" if wrong else "")
    said = text.splitlines()[2].startswith("Out of memory: rank ") if len(text.splitlines()) > 2 else False
    return Result(f"oom {name}", status != 0 and bool(rows) and not wrong and said, figure)


def kinds_around(ledger, phase):
    query = """WITH RECURSIVE around(id) AS (SELECT ? UNION ALL SELECT parent_id FROM around JOIN phase USING (id)
               WHERE parent_id IS NOT NULL) SELECT kind FROM around JOIN phase USING (id)"""
    return {kind for (kind,) in ledger.execute(query, (phase,))}


def write_errors(run):
    """PyTorch's message of each rank as <truth>.error.rank<R>, out of what torchrun let through."""
    for rank, words in re.findall(r"^\[rank(\d+)\]: torch\.OutOfMemoryError: (.*)$", run.log.read_text(), re.M):
        run.truth.with_name(f"{run.truth.name}.error.rank{rank}").write_text(words + "\n")


def read_errors(prefix):
    """{rank: PyTorch's message}."""
    paths = prefix.parent.glob(f"{prefix.name}.error.rank*")
    return {int(path.name.rpartition("rank")[2]): path.read_text() for path in sorted(paths)}


def message_in(name, errors, text):
    """`shardledger oom` says what the message of the rank that it speaks of says was asked for, also where that is a segment."""
    said = re.search(r"^Out of memory: rank (\d+), .*: (\S+ \w+) asked for by PyTorch's allocator(?: \(its message says (\S+ \w+),)?",
                     text, re.M)
    tried = re.search(r"Tried to allocate ([\d.]+) (\w+)\.", errors.get(int(said[1]), "") if said else "")
    if not tried:
        return Result(f"oom {name}: PyTorch's message", False, "no message of the rank that `oom` speaks of")
    digits = 1 if tried[2] in ("KiB", "MiB") else 2  # of the command; the message has two
    tried, shown = f"{float(tried[1]):.{digits}f} {tried[2]}", said[3] or said[2]
    return Result(f"oom {name}: PyTorch's message", tried == shown, f"it says {tried}, `oom` {shown}")


def as_pytorch_says(name, errors, ledger):
    """What a rank asked for, had allocated, had cached, and what the device had free, as in the message that ended it."""
    wrong = []
    query = """SELECT requested_bytes, free_bytes, allocated_bytes, reserved_bytes FROM oom
               WHERE rank = ? AND source = 'allocator' ORDER BY at_ns DESC"""
    for rank, message in errors.items():
        row = ledger.execute(query, (rank,)).fetchone()
        if row is None:
            wrong.append(f"rank {rank}: no refused request")
            continue
        requested, free, allocated, reserved = row
        for words in (
            f"Tried to allocate {in_words(segment_for(requested))}. ",
            f" of which {in_words(free)} is free. ",
            f" {in_words(allocated)} is allocated by PyTorch",
            f" {in_words(reserved - allocated)} is reserved by PyTorch but unallocated",
        ):
            if words not in message:
                wrong.append(f"rank {rank}: PyTorch does not say '{words.strip()}'")
    figure = "; ".join(wrong) or f"the figures of {len(errors)} messages"
    return Result(f"oom {name}: as PyTorch says", bool(errors) and not wrong, figure)


def segment_for(size):
    """The message names not the request, but the segment that the allocator then wanted from the driver."""
    return 2 * MIB if size <= MIB else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB


def in_words(size):
    """As PyTorch prints sizes in that message."""
    for unit, width in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if size > width:
            return f"{size / width:.2f} {unit}"
    return f"{size} bytes"
