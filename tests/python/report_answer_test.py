"""The report's first screen: its figures are the ledger's, its sentences those of the commands, and it fits the screen."""

import collections
import json
import re
import shutil
import sqlite3
import subprocess

import pytest
from exported import COMMAND, pytestmark, rows  # noqa: F401
from report_pages import Page, report

HEALTHY = ["life/evaluation", "fsdp2-2rank-long", "matrix/late-attach", "matrix/fsdp2-shapes"]
DEAD = ["oom-forward-2rank", "life/first-adamw-oom", "sites"]


def command(name, ledger, *arguments):
    done = subprocess.run([COMMAND, name, ledger, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def moment(ledger):
    """Of the rank with the highest peak of all: rank, instant, the period's end, allocated bytes."""
    return rows(ledger, """SELECT p.rank, p.peak_ns, p.end_ns, p.peak_allocated_bytes FROM period p
        WHERE p.same_as IS NULL ORDER BY p.peak_allocated_bytes DESC, p.rank, p.period LIMIT 1""")[0]


@pytest.mark.parametrize("run", HEALTHY)
def test_owners_at_the_peak_and_what_is_freed_in_its_period_are_the_ledgers(run, reported):
    ledger, path = reported(run)
    rank, at, end, allocated = moment(ledger)
    page = Page(path)
    expected = collections.defaultdict(lambda: [0, 0, 0])
    for category, detail, module, size, freed in rows(ledger, """SELECT category, detail, module_id, bytes, free_ns FROM allocation a
            WHERE rank = ? AND alloc_ns <= ? AND (free_ns IS NULL OR free_ns > ?) AND device = (SELECT device FROM rank r WHERE r.rank = a.rank)""", rank, at, at):
        owner = expected[category, detail, module]
        owner[0] += size
        owner[1] += 1
        owner[2] += size if freed is not None and freed <= end else 0
    told = {(row["category"], row["detail"], row["module"]): [row["bytes"], row["allocations"], row["freed"]] for row in page.table("answer_owners")}
    assert told == expected and sum(size for size, *_ in told.values()) == allocated == page.table("answer_at")[0]["allocated"]
    assert sum(freed for *_, freed in told.values()) > 0


@pytest.mark.parametrize("run", DEAD)
def test_owners_at_a_refused_request_are_the_ledgers(run, reported):
    ledger, path = reported(run)
    at = rows(ledger, "SELECT rank, at_ns FROM oom ORDER BY at_ns LIMIT 1")[0]
    told = {(row["category"], row["detail"], row["module"]): row["bytes"] for row in Page(path).table("answer_owners")}
    assert told == {(category, detail, module): size for category, detail, module, size in rows(
        ledger, "SELECT category, detail, module_id, sum(bytes) FROM oom_owner WHERE rank = ? AND at_ns = ? GROUP BY 1, 2, 3", *at)}


def test_owners_that_grow_are_told_apart(reported):
    ledger, path = reported("life/leak-varied")
    grown = set(rows(ledger, "SELECT category, detail, module_id FROM owner_growth WHERE grows"))
    told = Page(path).table("answer_owners")
    growing = {(row["category"], row["detail"], row["module"]) for row in told if row["grows"]}
    assert growing and growing <= grown
    assert all(row["freed"] + row["grows"] <= row["bytes"] for row in told)


@pytest.mark.parametrize("run, at", [("matrix/fsdp2-shapes", "peak"), ("oom-forward-2rank", "oom"), ("life/first-adamw-oom", "oom")])
def test_pytorchs_part_of_the_device_is_what_device_says(run, at, reported):
    ledger, path = reported(run)
    segments = json.loads(command("device", ledger, "--segments", "--at", at, "--json"))
    segments = segments["segments"] if isinstance(segments, dict) else segments
    told, sum_of = Page(path).json["answer"]["segments"], lambda name: sum(row[name] for row in segments)
    assert (told["reserved"], told["allocated"], told["pending"], told["segments"]) == (sum_of("bytes"), sum_of("allocated_bytes"), sum_of("pending_bytes"), len(segments))
    assert told["largest_free"] == max(row["largest_free_bytes"] for row in segments)
    assert told["cached"] == told["reserved"] - told["allocated"] - told["pending"]


@pytest.mark.parametrize("run", ["life/evaluation", "sites"])
def test_the_parts_of_the_device_are_all_of_it(run, reported, browser):
    ledger, path = reported(run)
    browser.open(path)
    parts = browser.js("return [...document.querySelectorAll('#capacity [data-bytes]')].map(e => +e.dataset.bytes)")
    (total,), = rows(ledger, "SELECT device_bytes FROM rank WHERE rank = 0")
    assert sum(parts) == total and len(parts) >= 4
    exact = Page(path).table("answer_sample")[0]["apart_ns"] == 0
    assert ("free, about" in browser.text("#capacity")) == ("estimate" in browser.text("#capacity")) == (not exact)


def test_under_a_limit_the_bar_is_what_the_process_may_take(reported, browser):
    ledger, path = reported("life/first-adamw-oom")
    browser.open(path)
    goal = json.loads(command("advise", ledger, "--json"))["goal"][0]
    assert goal["limit"] == "process"
    assert sum(browser.js("return [...document.querySelectorAll('#capacity [data-bytes]')].map(e => +e.dataset.bytes)")) == goal["limit_bytes"]


@pytest.mark.parametrize("run", [*HEALTHY, *DEAD, "life/server-leak", "life/leak-varied", "killed-2rank"])
def test_the_verdict_is_in_the_words_of_the_commands(run, reported, browser):
    ledger, path = reported(run)
    browser.open(path)
    verdict = browser.text("#verdict")
    if run in DEAD or run == "killed-2rank":
        told = [line.strip() for line in command("oom", ledger).splitlines()]
        assert verdict.startswith(f"{told[2]}. ")
        reasons = [line for line in told if line.startswith("Why: ")]
        assert all(reason[5:].split(";")[0].lower() in verdict.lower() for reason in reasons) and len(reasons) == (run != "killed-2rank")
    else:
        peak, where = re.search(r"^Peak (.*) allocated: rank \d+, (.*)$", command("peaks", ledger), re.M).groups()
        assert verdict.startswith(f"Peak {peak} ") and where.removeprefix("in ") in verdict
        grows = command("survivors", ledger).splitlines()[2].split(";")[0]
        assert grows.lower() in verdict.lower()
    assert not [word for word in ("NaN", "undefined", "null") if word in browser.text("#answer")]


def test_a_job_that_grows_says_which_line_keeps_it(reported, browser):
    ledger, path = reported("life/server-leak")
    browser.open(path)
    line, = re.findall(r"tests/gpu/life/jobs\.py:\d+", command("survivors", ledger))
    assert line in browser.text("#verdict") and line in browser.text("#todo")


def test_equal_layers_are_one_owner(reported, browser):
    ledger, path = reported("sites")
    browser.open(path)
    folded = browser.js("""return foldOwners(window.shardledger.run.answer_owners, window.shardledger.modules.modules)
        .map(row => [row.label, row.category, row.count, row.bytes])""")
    blocks, size = rows(ledger, """SELECT count(*), sum(bytes) FROM (SELECT module_id, sum(bytes) AS bytes FROM oom_owner
        WHERE category = 'optstate' GROUP BY module_id) JOIN module m ON m.id = module_id WHERE m.fqn LIKE 'blocks.%'""")[0]
    assert ["blocks.0–5", "optstate", blocks, size] in folded and blocks == 6
    assert sum(row[3] for row in folded) == rows(ledger, "SELECT allocated_bytes FROM oom")[0][0]
    assert "blocks.0–5 × 6" in browser.text("#who").replace("\u200b", "")


@pytest.mark.parametrize("run", ["life/evaluation", "matrix/fsdp2-shapes", *DEAD, "life/server-leak"])
@pytest.mark.parametrize("width, height, part", [(1400, 900, "answer"), (800, 900, "todo")])
def test_the_answer_is_on_the_first_screen(run, width, height, part, reported, browser):
    """At 1400 all of it; at 800 all but the last lines of what to do."""
    browser.open(reported(run)[1], width=width)
    place = browser.js("const b = document.getElementById(arguments[0]).getBoundingClientRect(); return [b.top, b.bottom]", part)
    assert place[part == "answer"] < height - (0 if part == "answer" else 100), place
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")


def test_of_many_ranks_the_answer_comes_before_the_map(fleet, browser):
    browser.open(fleet("large")[1])
    assert browser.js("return document.getElementById('answer').getBoundingClientRect().bottom <= document.getElementById('heat').getBoundingClientRect().top")
    verdict = browser.text("#verdict")
    assert verdict.startswith("Peak ") and " on rank 137, " in verdict and " in all) on rank 20; " in verdict  # which leaks


def test_a_category_leads_to_its_allocations(reported, browser):
    ledger, path = reported("life/evaluation")
    browser.open(path)
    rank, at, _, _ = moment(ledger)
    browser.js("[...document.querySelectorAll('#who th button')].find(b => b.innerText === 'optstate').click()")
    count, size = rows(ledger, "SELECT count(*), sum(bytes) FROM allocation WHERE category = 'optstate' AND alloc_ns <= ? AND coalesce(free_ns > ?, 1)", at, at)[0]
    assert browser.text("#allocations [data-part=matches]").startswith(f"{count} allocations, ")
    assert sum(browser.js("window.shardledger.allocations.table.all = true; window.shardledger.allocations.draw(); return [...document.querySelectorAll('#allocations tbody [data-bytes]')].map(e => +e.dataset.bytes)")) == size


def test_run_against_run_is_what_diff_says(reported, browser, tmp_path):
    before, _ = reported("fsdp2-2rank")
    ledger, _ = reported("fsdp2-2rank-recompute")
    page = report(before, tmp_path / "both.html", ledger)
    text = command("diff", before, ledger)
    browser.open(page)
    verdict = re.search(r"^Peak A .*$", text, re.M)[0]
    assert browser.text("#run-diff-title").startswith("Against ") and browser.text("#run-diff-lead").startswith(f"{verdict}.")
    assert browser.text("#verdict").startswith(f"Peak {re.search('B ([^(]*) ', verdict)[1]} ")  # the page is of the second
    rows_told = [row for row in Page(page).json["diff"]["rows"]["changes"] if row["what"] == "category"]
    expected = {(row["category"], row["rank"]): row["change_bytes"] for row in json.loads(command("diff", before, ledger, "--json")) if row["what"] == "category"}
    assert {row["category"]: row["change_bytes"] for row in rows_told if row["ranks"] in ("all", "0")} == {name: change for (name, rank), change in expected.items() if rank == 0}
    shown = browser.js("""return [...document.querySelectorAll('#run-diff-tables .scroll:first-of-type tbody tr')].map(tr => +[...tr.querySelectorAll('[data-bytes]')].pop().dataset.bytes)""")
    assert shown == [row["change_bytes"] for row in rows_told][:len(shown)] and shown
    assert "run-diff" not in browser.texts("h2") and not [word for word in ("NaN", "undefined", "null") if word in browser.text("#run-diff")]


def test_a_run_against_itself_differs_in_nothing(reported, browser, tmp_path):
    ledger, _ = reported("life/evaluation")
    browser.open(report(ledger, tmp_path / "same.html", ledger))
    assert "Nothing differs." in browser.text("#run-diff")


def test_without_allocations_it_says_what_the_driver_gave(reported, browser, tmp_path):
    """As `peaks` says it then."""
    ledger = shutil.copy(reported("fsdp2-2rank")[0], tmp_path / "blind.sqlite")
    with sqlite3.connect(ledger) as db:
        for table, kept in (("period", ("peak_", "end_")), ("life", ("peak_", "highest_"))):
            names = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1].startswith(kept) and row[1] != "end_ns"]
            db.execute(f"UPDATE {table} SET {', '.join(f'{name} = NULL' for name in names)}")
        for table in ("allocation", "peak", "peak_category", "peak_owner", "rank_group"):
            db.execute(f"DELETE FROM {table}")
    browser.open(report(ledger, tmp_path / "blind.html"))
    told = next(line for line in command("peaks", ledger).splitlines() if line.startswith("Peak "))
    assert browser.text("#verdict").strip() == told.strip()
    assert browser.js("return document.getElementById('capacity').hidden && document.getElementById('who').hidden")
    assert browser.text("#todo").startswith("What to do") and "No advice: no allocation was recorded" in browser.text("#todo")
