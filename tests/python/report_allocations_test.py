"""Allocations one by one, their stories, segments, and two moments side by side, in the report: against the ledger and the commands."""

import json
import re
import subprocess

import long_run
import pytest
from exported import COMMAND, pytestmark, rows  # noqa: F401
from report_pages import Page, report


def zero(ledger):
    return rows(ledger, "SELECT min(start_ns) FROM rank")[0][0]


def alive(ledger, rank, at):
    return {row[0]: row[1] for row in rows(ledger, """SELECT id, bytes FROM allocation a WHERE rank = ? AND alloc_ns <= ? AND coalesce(free_ns > ?, 1)
        AND device = (SELECT device FROM rank r WHERE r.rank = a.rank)""", rank, at, at)}


@pytest.fixture(scope="module")
def repeating(reported, tmp_path_factory):
    """12 steps of which most repeat one of the first: (ledger, page)."""
    directory = tmp_path_factory.mktemp("repeating")
    ledger = long_run.repeat(reported("fsdp2-2rank")[0], directory / "run.sqlite", ranks=1, steps=12, full_every=10)
    return ledger, report(ledger, directory / "report.html")


LISTED = """const {allocations, view, at} = window.shardledger;
    return [allocations.alive(view, at).map(row => [row.id, row.bytes]), view.memory.totalAt(at)]"""


@pytest.mark.parametrize("run", ["fsdp2-2rank", "life/evaluation", "oom-forward-2rank"])
def test_what_is_alive_at_a_moment_is_what_the_ledger_says(run, reported, browser):
    ledger, page = reported(run)
    browser.open(page)
    for rank, at in rows(ledger, "SELECT rank, peak_ns FROM period WHERE peak_ns IS NOT NULL AND same_as IS NULL LIMIT 12"):
        browser.js("window.shardledger.showRank(arguments[0]); window.shardledger.select(arguments[1])", rank, at - zero(ledger))
        listed, total = browser.js(LISTED)
        assert dict(listed) == alive(ledger, rank, at) and sum(size for _, size in listed) == total


def test_a_step_that_repeats_another_one_lists_the_allocations_of_that_one(repeating, browser):
    ledger, page = repeating
    browser.open(page)
    step, same_as, peak = rows(ledger, "SELECT step, same_as, peak_allocated_bytes FROM step WHERE rank = 0 AND same_as IS NOT NULL LIMIT 1")[0]
    (at,), = rows(ledger, "SELECT peak_ns FROM step WHERE rank = 0 AND step = ?", same_as)
    browser.js("const {shardledger: app} = window; app.showRank(0); app.showStep(app.view.stepByNumber.get(arguments[0]))", step)
    assert f"They are those of step {same_as}, which step {step} repeats." in browser.text("#allocations [data-part=note]")
    listed, total = browser.js(LISTED)
    assert dict(listed).items() <= alive(ledger, 0, at).items() and total == peak
    assert sum(size for _, size in listed) <= total


def test_what_the_page_does_not_list_is_said(reported, browser):
    """It has room for 20,000 of all drawn ranks: of two with 22,815 each the largest 10,000, and those of the peaks."""
    ledger, page = reported("matrix/fsdp2-shapes")
    told = Page(page).table("allocation_counts")
    assert [row["told"] for row in told] == [10000, 10000] and all(row["count"] > 10000 for row in told)
    assert len(Page(page).json["allocations"]["rows"]) == 20000
    browser.open(page)
    listed, total = browser.js(LISTED)
    assert sum(size for _, size in listed) == total  # the highest peak is whole
    browser.js("window.shardledger.showStep(window.shardledger.view.steps[3])")
    listed, total = browser.js(LISTED)
    rest, note = total - sum(size for _, size in listed), browser.text("#allocations [data-part=note]")
    assert rest > 0 and f"({rest:,} B) more are in smaller allocations" in note
    assert f"lists 10,000 of {told[0]['count']:,} allocations" in note
    assert "Not all allocations of this moment are in the page" in browser.text("#segments [data-part=note]")


def test_the_story_is_what_explain_tells(reported, browser):
    ledger, page = reported("sites")
    browser.open(page)
    ids = [row[0] for row in rows(ledger, "SELECT min(id) FROM allocation WHERE site_id IS NOT NULL AND free_ns IS NOT NULL GROUP BY category, decided_by")]
    assert len(ids) > 3
    for number in ids:
        told = subprocess.run([COMMAND, "explain", str(number), ledger], capture_output=True, text=True).stdout
        browser.js("window.shardledger.chooseAllocation(arguments[0])", number)
        facts = dict(browser.js("""const dl = document.querySelector('.story'), dt = [...dl.querySelectorAll('dt')];
            return dt.map(e => [e.innerText, e.nextElementSibling.textContent])"""))
        said = dict(re.findall(r"^(Made|In|Size|Where|Code|Freed|Why) +(.*)$", told, re.M))
        assert facts["In"].replace(" › ", " > ") == said["In"] and facts["Why"] == said["Why"]
        assert facts["Where"] == re.sub(r" on GPU \d+", "", said["Where"])
        assert re.sub(r" \([\d,]+ B\)", "", facts["Size"]) == said["Size"]
        assert facts.get("Code") == said.get("Code")
        assert facts["Freed"].replace(" › ", " > ").split("; in ")[-1] == said["Freed"].split("; in ")[-1]
        assert facts["Made"].split(", ")[0] == said["Made"].split(", ")[0] or "before the first step" in said["Made"]
        headline = told.splitlines()[2]
        assert browser.js("return document.querySelector('.story-box h3').textContent") == headline


def test_the_same_memory_is_listed_before_and_after(reported, browser):
    ledger, page = reported("life/evaluation")
    browser.open(page)
    (number,), = rows(ledger, "SELECT id FROM allocation WHERE address IN (SELECT address FROM allocation GROUP BY address HAVING count(*) > 6) ORDER BY id LIMIT 1 OFFSET 4")
    told = json.loads(subprocess.run([COMMAND, "explain", str(number), ledger, "--json"], capture_output=True, text=True).stdout)
    assert told
    browser.js("window.shardledger.chooseAllocation(arguments[0])", number)
    shown = [int(text) for text in browser.texts(".story-box tbody td:nth-child(2)")]
    text = subprocess.run([COMMAND, "explain", str(number), ledger], capture_output=True, text=True).stdout
    assert shown == [int(found) for found in re.findall(r"^(?:before|after) +(\d+)", text, re.M)] and len(shown) > 1


def test_legend_owner_module_and_lane_lead_to_allocations(reported, browser):
    ledger, page = reported("fsdp2-2rank")
    browser.open(page)
    at = browser.js("return window.shardledger.at") + zero(ledger)
    found = """return [document.querySelector('#allocations [data-part=find]').value, document.querySelector('#allocations [data-part=matches]').innerText]"""
    held = rows(ledger, """SELECT a.category, n.name, count(*) FROM allocation a LEFT JOIN module_name n ON n.id = a.module_id
        WHERE a.rank = 0 AND alloc_ns <= ? AND coalesce(free_ns > ?, 1) GROUP BY 1, 2""", at, at)
    browser.js("[...document.querySelectorAll('#legend button')].find(b => b.innerText === 'optstate').click()")
    words, said = browser.js(found)
    assert words == "optstate" and said.startswith(f"{sum(count for category, _, count in held if category == 'optstate')} allocations, ")
    browser.js("[...document.querySelectorAll('#moment tbody tr')].find(r => r.cells[0].innerText === 'blocks.0' && r.cells[1].innerText.trim() === 'optstate').querySelector('button').click()")
    words, said = browser.js(found)
    (count,) = [count for category, module, count in held if category == "optstate" and module == "Transformer.blocks.0"]
    assert words == "Transformer.blocks.0 optstate" and said.startswith(f"{count} allocations, ")
    browser.js("[...document.querySelectorAll('#modules button.plain')].find(b => b.title === 'Transformer.blocks.2').click()")
    assert browser.js(found)[0] == "Transformer.blocks.2"
    browser.js("document.querySelector('#allocations [data-part=find]').value = ''")
    lane = browser.js("""const {lanes} = window.shardledger, lane = lanes.shown.find(l => l.name === 'main'), item = lane.inView.find(i => i.phase.kind === 'forward');
        lanes.actions.pick(item); return [item.phase.start, item.phase.end, item.phase.tid]""")
    start, end, tid = lane[0] + zero(ledger), lane[1] + zero(ledger), lane[2]
    made = rows(ledger, "SELECT count(*) FROM allocation WHERE rank = 0 AND tid = ? AND alloc_ns BETWEEN ? AND ?", tid, start, end)[0][0]
    assert f": {made} allocations, " in browser.text("#allocations [data-part=lead]") and made > 10
    browser.click("#allocations [data-part=scope] button")
    assert browser.text("#allocations [data-part=lead]").startswith("Alive on rank 0")


def test_the_table_sorts_and_says_when_nothing_is_found(reported, browser):
    browser.open(reported("fsdp2-2rank")[1])
    sizes = "return [...document.querySelectorAll('#allocations tbody td:nth-child(2) [data-bytes]')].map(e => +e.dataset.bytes)"
    assert browser.js(sizes) == sorted(browser.js(sizes), reverse=True) and len(set(browser.js(sizes))) > 2
    browser.js("document.querySelector('#allocations th:nth-child(2) button').click()")
    assert browser.js(sizes) == sorted(browser.js(sizes))
    browser.js("const find = document.querySelector('#allocations [data-part=find]'); find.value = 'no such thing'; find.dispatchEvent(new Event('input'))")
    assert browser.text("#allocations [data-part=matches]") == "nothing here has that in it"


@pytest.mark.parametrize("run, at", [("fsdp2-2rank", "peak"), ("oom-forward-2rank", "oom"), ("matrix/expandable-segments", "peak")])
def test_segments_are_those_of_device(run, at, reported, browser):
    ledger, page = reported(run)
    told = json.loads(subprocess.run([COMMAND, "device", ledger, "--segments", "--at", at, "--rank", "0", "--json"], capture_output=True, text=True).stdout)
    told = told["segments"] if isinstance(told, dict) else told
    browser.open(page)
    browser.js("window.shardledger.showRank(0); window.shardledger.select(arguments[0])", told[0]["at_ns"] - zero(ledger))
    shown = browser.js("""const {segments, run, view, at, allocations} = window.shardledger, then = view.memory.instantOf(at);
        const lives = (row, end) => row.alloc <= then && (end === null || end > then);
        const found = joined(run.byRank.segments.get(0).filter(row => lives(row, row.free)));
        const {rows} = allocations.rowsOf(view);
        place(found, rows.filter(row => lives(row, row.complete)), rows.filter(row => row.pool !== null), then);
        return found.map(s => [s.address, s.bytes, s.largest, s.used, s.kept])""")
    assert sorted(shown) == sorted([int(row["address"], 16), row["bytes"], row["largest_free_bytes"], row["allocated_bytes"] + row["pending_bytes"], row["kept_bytes"]] for row in told)
    assert f"{len(told)} segments, " in browser.text("#segments [data-part=lead]")
    assert browser.js("const block = document.querySelector('#segments [data-id]'); block.dispatchEvent(new MouseEvent('click', {bubbles: true})); return +block.dataset.id") == browser.js("return window.shardledger.allocations.chosen")


def test_two_moments_are_compared_owner_by_owner(reported, browser):
    ledger, page = reported("fsdp2-2rank")
    browser.open(page)
    first, second = [row[0] for row in rows(ledger, "SELECT peak_ns FROM step WHERE rank = 0 ORDER BY step LIMIT 2")]
    browser.js("window.shardledger.showRank(0); window.shardledger.select(arguments[0])", first - zero(ledger))
    browser.click("[data-compare=keep]")
    browser.js("window.shardledger.select(arguments[0])", second - zero(ledger))
    held = {}
    for sign, at in ((-1, first), (1, second)):
        for category, size in rows(ledger, "SELECT category, sum(bytes) FROM allocation WHERE rank = 0 AND alloc_ns <= ? AND coalesce(free_ns > ?, 1) GROUP BY 1", at, at):
            held[category] = held.get(category, 0) + sign * size
    shown = {}
    browser.js("window.shardledger.compare.table.all = true; window.shardledger.compare.show()")
    for category, change in browser.js("return [...document.querySelectorAll('#compare tbody tr')].map(tr => [tr.cells[1].innerText.trim().split(/\\s/)[0], +tr.cells[4].querySelector('[data-bytes]').dataset.bytes])"):
        shown[category] = shown.get(category, 0) + change
    assert {category: change for category, change in shown.items() if change} == {category: change for category, change in held.items() if change} and shown
    browser.js("window.shardledger.showRank(1)")
    assert browser.text("#compare [data-part=lead]").startswith("First: rank 0, step ") and "Second: rank 1, step " in browser.text("#compare [data-part=lead]")
    browser.click("[data-compare=forget]")
    assert browser.js("return document.getElementById('compare').hidden")
