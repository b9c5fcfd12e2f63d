"""The report's data against the ledger, read by the description in viewer/report/page_timeline.c."""

import hashlib
import re
import shutil
import sqlite3
import subprocess

import long_run
import pytest
import readers
from exported import COMMAND, ROOT, pytestmark, rows  # noqa: F401
from report_pages import RUNS, UPLOT, UPLOT_SHA256, UPLOT_WHEEL, Page, report


@pytest.mark.parametrize("run", RUNS)
def test_the_highest_instant_of_each_step_is_its_peak_to_the_byte(run, reported):
    ledger, page = reported(run)
    peaks = dict(((rank, step), peak) for rank, step, peak in rows(ledger, "SELECT rank, step, peak_allocated_bytes FROM step"))
    found = {(rank, window.step): max(sum(held.values()) for _, held in window.samples)
             for rank, windows in Page(page).windows.items() for window in windows if window.step >= 0}
    assert found == peaks and peaks


def test_downsampling_keeps_every_peak(long):
    ledger, path = long
    page = Page(path)
    peaks = dict(((rank, step), peak) for rank, step, peak in rows(ledger, "SELECT rank, step, peak_allocated_bytes FROM step"))
    thinned = 0
    for rank, windows in page.windows.items():
        for window in windows:
            if window.step >= 0 and window.repeats < 0:
                assert max(sum(held.values()) for _, held in window.samples) == peaks[rank, window.step]
                assert window.difference == 0
                thinned += len(window.samples) < window.events
    assert thinned > 250
    assert {(row["rank"], row["step"]): row["allocated"] for row in page.table("steps")} == peaks
    assert path.stat().st_size < 5e6


def test_ranks_that_are_missing_are_named(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(ROOT / "tests" / "data" / "fsdp2-2rank", run)
    assert Page(report(run, tmp_path / "whole.html")).table("coverage") == [{"run": None, "missing": None, "rehearsal": None}]
    (gone,) = run.glob("vm-714-*")
    shutil.rmtree(gone)
    assert subprocess.run([COMMAND, "ingest", run], capture_output=True).returncode == 0
    assert Page(report(run, tmp_path / "part.html")).table("coverage") == [{"run": None, "missing": "1", "rehearsal": None}]


def test_a_rehearsal_is_named(tmp_path):
    ledger = tmp_path / "run.sqlite"
    subprocess.run([COMMAND, "ingest", ROOT / "tests" / "data" / "fsdp2-2rank", "-o", ledger], check=True, capture_output=True)
    with sqlite3.connect(ledger) as db:
        db.execute("UPDATE rank SET rehearsal = 'rehearsal-1', world_size = 64")
    said = {"run": None, "missing": None, "rehearsal": "rehearsal of ranks 0-1 of 64"}
    assert Page(report(ledger, tmp_path / "page.html")).table("coverage") == [said]


def owners_in_ledger(ledger, rank, at_ns):
    """{(module, category, detail): bytes} alive at an instant."""
    return {(module, category, detail or ""): size for module, category, detail, size in rows(
        ledger, "SELECT module_id, category, detail, sum(bytes) FROM allocation WHERE rank = ? AND alloc_ns <= ? AND"
                " (free_ns IS NULL OR free_ns > ?) GROUP BY 1, 2, 3", rank, at_ns, at_ns)}


def test_owners_at_any_held_instant_are_those_of_the_ledger(long, reported):
    for ledger, path in [reported("fsdp2-2rank"), reported("oom-forward-2rank"), long]:
        page = Page(path)
        zero = rows(ledger, "SELECT min(start_ns) FROM rank")[0][0]
        for rank in (0, 1):
            own = [window for window in page.windows[rank] if window.repeats < 0]
            for window in own[:: max(1, len(own) // 12)]:
                last = {at: held for at, held in window.samples[1:]}  # of one instant the last sample is what stays
                for at, held in list(last.items())[:: max(1, len(last) // 8)]:
                    assert held == owners_in_ledger(ledger, rank, zero + at)


def test_a_ledger_that_stores_repeated_steps_once_gives_the_same_page(tmp_path):
    """From logs: recorded steps 3 and 4, 60 times; with the rows of all steps, and as ledgers are made."""
    repeat_steps = COMMAND.with_name("repeat_steps")
    if not repeat_steps.exists():
        pytest.skip(f"{repeat_steps} is not built")
    for log in (ROOT / "tests" / "data" / "fsdp2-2rank").glob("vm-*"):
        subprocess.run([repeat_steps, log, tmp_path / "run" / log.name, "3", "4", "60"], check=True, capture_output=True)
    pages = []
    for name, options in (("once", []), ("all", ["--keep", "all"])):
        ledger = tmp_path / f"{name}.sqlite"
        subprocess.run([COMMAND, "ingest", tmp_path / "run", "-o", ledger, *options], check=True, capture_output=True)
        pages.append((Page(report(ledger, tmp_path / f"{name}.html")),
                      rows(ledger, "SELECT rank, step, peak_allocated_bytes FROM step"),
                      rows(ledger, "SELECT count(*) FROM step WHERE same_as IS NOT NULL")[0][0]))
    (once, peaks, repeated), (all_rows, all_peaks, none) = pages
    assert peaks == all_peaks and repeated > 200 and none == 0
    for rank, windows in once.windows.items():
        steps = {window.step: window for window in all_rows.windows[rank] if window.step >= 0}
        assert len(steps) > 100
        for window in windows:
            if window.step < 0:
                continue
            assert window.difference == 0
            drawn = windows[window.repeats] if window.repeats >= 0 else window
            own = steps[window.step]
            assert max(sum(held.values()) for _, held in drawn.samples) == max(sum(held.values()) for _, held in own.samples)
            if drawn.full and own.full:
                assert [held for _, held in drawn.samples] == [held for _, held in own.samples]


def test_a_step_asked_for_is_held_in_full(long, tmp_path):
    ledger, path = long
    chosen = next(window.step for window in Page(path).windows[0] if window.step > 10 and not window.full and window.repeats < 0)
    page = Page(report(ledger, tmp_path / "step.html", "--step", str(chosen)))
    (window,) = [window for window in page.windows[0] if window.step == chosen]
    assert window.full and len(window.samples) == window.events + 1
    assert {row["step"] for row in page.table("module_peaks")} >= {chosen}


def test_ranks_of_several_hosts_are_on_one_clock(reported, tmp_path):
    """Rank 1 on a host whose clock is five seconds ahead: its times are moved back by what the collectives show."""
    plain, path = reported("fsdp2-2rank")
    ledger = shutil.copy(plain, tmp_path / "run.sqlite")
    db = sqlite3.connect(ledger)
    for table, in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'meta'").fetchall():
        names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        times = [name for name in names if name in long_run.TIMES]
        if times:
            db.execute(f"UPDATE {table} SET {', '.join(f'{name} = {name} + 5000000000' for name in times)} WHERE rank = 1")
    db.execute("UPDATE rank SET host = 'other' WHERE rank = 1")
    db.commit()
    offset = db.execute("SELECT offset_ns FROM host_clock WHERE host = 'other'").fetchone()[0]
    db.close()
    before, after = Page(path), Page(report(ledger, tmp_path / "report.html"))
    moved = {new.start - old.start for old, new in zip(before.windows[1], after.windows[1])}
    still = {new.start - old.start for old, new in zip(before.windows[0], after.windows[0])}
    (apart,) = {a - b for a in moved for b in still}
    assert apart == 5000000000 - offset and abs(apart) < 1e8
    for name in ("steps", "phases", "collectives", "device_samples"):
        key = next(key for key in ("start", "at") if key in before.json[name]["columns"])
        assert {new[key] - old[key] for old, new in zip(before.table(name), after.table(name)) if old["rank"] == 1} == moved


def test_hostile_names_are_data_and_nothing_else(attacked, reported):
    page, plain = Page(attacked), Page(reported("fsdp2-2rank")[1])
    strip = re.compile(r'id="data">[^<]*<|nonce[-=]"?[0-9a-f]*')
    assert strip.sub("", page.html) == strip.sub("", plain.html), "a name reached the page outside of its data"
    assert any(row["fqn"].startswith("</script>") for row in page.table("modules"))


def test_the_chart_library_is_what_the_registry_has(reported):
    page = reported("fsdp2-2rank")[1].read_text(encoding="utf-8")
    assert UPLOT.read_text(encoding="utf-8") in page and "Permission is hereby granted, free of charge" in page
    assert hashlib.sha256(UPLOT.read_bytes()).hexdigest() == UPLOT_SHA256
    notice = (ROOT / "NOTICE").read_text()
    assert "uPlot 1.6.31" in notice and UPLOT_SHA256 in notice and "Leon Sorokin" in notice
    place = readers.install(UPLOT_WHEEL, "--no-deps")
    assert (place / "youplot" / "vendor" / "uplot.iife.min.js").read_bytes() == UPLOT.read_bytes()
