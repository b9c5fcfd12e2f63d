"""Exactness: each step's peaks against torch.cuda.memory_stats, to the byte."""

import json

from .harness import Result

QUANTITIES = ("requested", "allocated", "active", "reserved")

# The job's own variables (tokens, loss) die when its step function returns: after the optimizer's step, where the
# ledger's step ends. So the values at the end may differ by them, and by no more.
END_SLACK_BYTES = 1 << 20


def read_truth(prefix):
    """{(rank, step): row} of the files <prefix>.rank<R>; a last line that a kill cut off is left out."""
    rows = {}
    for path in sorted(prefix.parent.glob(f"{prefix.name}.rank*")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                row = json.loads(line)
                rows[row["rank"], row["step"]] = row
    return rows


def read_steps(ledger):
    """{(rank, step): {column: bytes}} of the ledger's step table."""
    columns = [f"{when}_{quantity}_bytes" for when in ("peak", "end") for quantity in QUANTITIES]
    query = f"SELECT rank, step, {', '.join(columns)} FROM step"
    return {(rank, step): dict(zip(columns, values)) for rank, step, *values in ledger.execute(query)}


def differences(truth, steps, when):
    """[(rank, step, quantity, truth, ledger)] where they differ; a step that the ledger lacks differs in all."""
    found = []
    for (rank, step), row in sorted(truth.items()):
        have = steps.get((rank, step), {})
        for quantity in QUANTITIES:
            want, got = row[f"{quantity}_{when}"], have.get(f"{when}_{quantity}_bytes")
            if want != got:
                found.append((rank, step, quantity, want, got))
    return found


def largest(found):
    return max((abs(got - want) if got is not None else want for *_, want, got in found), default=0)


def check_exact(name, truth, ledger):
    """The result of comparing every step that the truth has."""
    steps = read_steps(ledger)
    peaks, ends = differences(truth, steps, "peak"), differences(truth, steps, "end")
    failed_checks = ledger.execute("SELECT count(*) FROM step WHERE checked = 0").fetchone()[0]
    count = len(truth) * len(QUANTITIES)
    untold = sorted({rank for rank, _ in steps} - {rank for rank, _ in truth})
    figure = f"{count - len(peaks)} of {count} peaks equal"
    if peaks:
        rank, step, quantity, want, got = peaks[0]
        figure += f" (first: rank {rank} step {step} {quantity} {got} instead of {want})"
    figure += f", {count - len(ends)} of {count} ends" + (f" (off by at most {largest(ends)} B)" if ends else "")
    if untold:
        figure += f"; no truth of rank {untold[0]}" + (f" and {len(untold) - 1} others" if untold[1:] else "")
    if failed_checks:
        figure += f"; the replay's own check failed in {failed_checks} steps"
    passed = bool(truth) and not untold and not peaks and largest(ends) <= END_SLACK_BYTES and not failed_checks
    return Result(f"{name}: bytes", passed, figure, {"peaks": peaks, "ends": ends})
