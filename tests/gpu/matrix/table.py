"""The table: Markdown for people, JSON for the rest."""

import dataclasses
import json

from checks.harness import MIB

HEAD = "| job | steps | exact | ends | attributed | tracker | notes |\n| --- | ---: | --- | --- | ---: | ---: | --- |"


def of(part, whole):
    return f"{part} of {whole}" if whole else "–"


def exact(row):
    if row.error:
        return "**error**"
    if row.skipped or row.tried:
        return "skipped" if row.skipped else "tried"
    return of(row.equal, row.compared) if row.exact else f"**{of(row.equal, row.compared)}**"


def notes(row):
    words = [row.error or row.skipped, *row.notes]
    if row.differences:
        where, what, want, got = row.differences[0]
        words.append(f"{len(row.differences)} differences, first: {where} {what} {got} for {want}")
    if row.tracker_off:
        difference, key, ours, theirs = row.tracker_off[0]
        words.append(f"farthest from the tracker: {difference / MIB:.2f} MiB, {key} ({ours} for {theirs} B)")
    return "; ".join(word for word in words if word).replace("|", "/")


def attributed(row):
    return "–" if row.attributed is None else f"{int(row.attributed * 100_000) / 1000:.3f}%"


def line(row):
    name = row.job if row.job == row.process or row.process.startswith(("fsdp", "unsharded")) else f"{row.process}: {row.job}"
    tracker = of(row.tracker_near, row.tracker_rows)
    cells = [name, row.steps, exact(row), of(row.ends_equal, row.ends_compared), attributed(row), tracker, notes(row)]
    return "| " + " | ".join(map(str, cells)) + " |"


def summary(rows, seconds):
    good = sum(row.exact is True for row in rows)
    bad, skipped = sum(row.exact is False for row in rows), sum(row.exact is None for row in rows)
    words = f"{good} jobs exact, {bad} not, {skipped} skipped"
    words += f", in {seconds:.0f} s"
    near, compared = sum(row.tracker_near for row in rows), sum(row.tracker_rows for row in rows)
    return f"{words}; {near} of {compared} tracker rows within 1% or 1 MiB."


def markdown(rows, on, seconds):
    text = f"# Truth matrix\n\n{on}.\n\n{summary(rows, seconds)}\n\n{HEAD}\n"
    return text + "".join(line(row) + "\n" for row in rows)


def write(out, rows, on, seconds):
    """truth-matrix.md and truth-matrix.json in the directory out."""
    (out / "truth-matrix.md").write_text(markdown(rows, on, seconds))
    record = {"machine": on, "seconds": seconds, "rows": [{**dataclasses.asdict(row), "exact": row.exact} for row in rows]}
    (out / "truth-matrix.json").write_text(json.dumps(record, indent=1) + "\n")
