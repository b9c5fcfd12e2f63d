"""The report's page of jobs with many ranks, made up by make_fleet: its data against the ledger, and itself in a browser."""

import collections
import itertools
import math
import resource
import subprocess

import pytest
from exported import COMMAND, pytestmark, rows  # noqa: F401
from report_look_test import VISIONS, lab, linear
from report_pages import Numbers, Page, report

def test_a_thousand_ranks_take_few_seconds_and_megabytes(fleet, tmp_path):
    """Processor time: the least of some, this machine may be busy. 64 s and 2.6 MB when every rank was drawn."""
    ledger, page = fleet("large")
    taken = []
    while len(taken) < 4 and min(taken, default=10) >= 10:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        report(ledger, tmp_path / "report.html")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(taken) < 10, taken
    assert page.stat().st_size < 5e6
    assert rows(ledger, "SELECT count(*) FROM rank") == [(1024,)]


@pytest.mark.parametrize("job", ["large", "mesh", "noise"])
def test_peaks_of_every_step_of_every_rank_are_those_of_the_ledger(job, fleet):
    ledger, path = fleet(job)
    page = Page(path)
    heat = page.json["heat"]
    assert all(first == last for first, last in heat["steps"])
    found = {}
    for rank, offset in heat["ranks"]:
        series, value = Numbers(page.samples, offset), 0
        for step, _ in heat["steps"]:
            value += series.signed()
            if value:
                found[rank, step] = value - 1
    assert found == {(rank, step): peak for rank, step, peak in rows(
        ledger, "SELECT rank, step, peak_allocated_bytes FROM step WHERE peak_allocated_bytes IS NOT NULL")}
    if job == "large":  # ranks that are equal share a series
        assert len({offset for _, offset in heat["ranks"]}) == 5


def test_ranks_that_stand_for_others_or_stand_out_are_drawn(fleet, tmp_path):
    ledger, path = fleet("large")
    spokesmen = [rank for rank, in rows(ledger, "SELECT DISTINCT representative FROM rank_group ORDER BY 1")]
    assert spokesmen == [0, 20, 64, 137, 180] == sorted(Page(path).windows)
    ledger, path = fleet("mesh")
    assert sorted(Page(path).windows) == [0, 16, 37]  # 37 ran out of memory
    asked = Page(report(ledger, tmp_path / "asked.html", "--rank", "3,40-41"))
    assert sorted(asked.windows) == [0, 3, 16, 37, 40, 41]
    assert {row["rank"] for row in asked.table("phases")} == set(asked.windows)
    assert len(asked.table("ranks")) == len(asked.table("life")) == 63
    refused = subprocess.run([COMMAND, "report", ledger, "-o", tmp_path / "no.html", "--rank", "99"], capture_output=True, text=True)
    assert refused.returncode == 2 and "no rank 99" in refused.stderr and not (tmp_path / "no.html").exists()


def test_a_column_is_the_highest_of_several_steps_in_a_long_run(fleet, tmp_path):
    subprocess.run([COMMAND.with_name("make_fleet"), tmp_path / "run", "--ranks", "4", "--steps", "1100", "--more", "2:64:1:777"],
                   check=True, capture_output=True)
    page = Page(report(tmp_path / "run", tmp_path / "report.html"))
    heat = page.json["heat"]
    assert len(heat["steps"]) <= 500 and heat["steps"][0] == [0, 2] and heat["steps"][-1][1] == 1099
    offset = dict(heat["ranks"])[2]
    series, value, found = Numbers(page.samples, offset), 0, []
    for _ in heat["steps"]:
        value += series.signed()
        found.append(value - 1)
    peaks = dict(rows(tmp_path / "run" / "ledger.sqlite", "SELECT step, peak_allocated_bytes FROM step WHERE rank = 2"))
    assert found == [max(peaks[step] for step in range(first, last + 1)) for first, last in heat["steps"]]


# ---- in the browser ----


def test_the_page_begins_with_what_ranks_says(fleet, browser):
    ledger, page = fleet("large")
    said = subprocess.run([COMMAND, "ranks", ledger], capture_output=True, text=True, check=True).stdout.splitlines()
    browser.open(page)
    lines = [line.strip() for line in said[said.index("") + 1:] if not line.startswith("missing")]
    assert [" ".join(line.split()) for line in lines] == [text.strip() for text in browser.text("#alike").split("\n") if text.strip()]
    assert browser.text("#alike").startswith("1024 ranks in 5 groups; 950 alike")


def cells(browser):
    """{rank: {step: colour's name}} as drawn, of rows of one rank."""
    return {row["ranks"][0]: row["tones"] for row in browser.js(
        "const h = window.shardledger.heat; return h.rows.map(r => ({ranks: r.ranks, tones: r.cells.map(c => c && h.tone(c.value))}))")}


def test_the_heat_map_is_ordered_by_host_or_coordinate(fleet, browser):
    ledger, page = fleet("mesh")
    browser.open(page)
    order = "return window.shardledger.heat.rows.flatMap(r => r.ranks)"
    units = "return window.shardledger.heat.rows.filter(r => r.first).map(r => r.unit)"
    by_rank = [rank for rank, in rows(ledger, "SELECT rank FROM rank ORDER BY rank")]
    assert browser.js(order) == by_rank
    assert browser.js(units) == [f"gpu-node-0{n}" for n in range(8)]
    browser.js("const s = document.querySelector('[data-choose=order]'); s.value = 'dp'; s.dispatchEvent(new Event('change'))")
    assert browser.js(order) == [rank for rank, in rows(ledger, "SELECT rank FROM mesh WHERE dim = 'dp' ORDER BY coordinate, rank")]
    assert browser.js(units) == [f"dp={n}" for n in range(16)]
    browser.js("const s = document.querySelector('[data-choose=order]'); s.value = 'group'; s.dispatchEvent(new Event('change'))")
    assert browser.js(order) == [rank for rank, in rows(ledger, "SELECT rank FROM rank_group ORDER BY group_number, rank")]


def test_the_heat_map_shows_who_differs_since_when(fleet, browser):
    ledger, page = fleet("mesh")
    browser.open(page)
    drawn = cells(browser)
    assert {tone for rank in range(16, 32) for tone in drawn[rank]} == {"more-4"}
    assert set(drawn[0]) == set(drawn[63]) == {"even"}
    assert drawn[37][:9] == ["even"] * 9 and drawn[37][9].startswith("less") and drawn[37][10:] == [None, None]  # it died in step 9
    for selector, absolute in (("difference", False), ("bytes", True)):
        browser.js("const s = document.querySelector('[data-choose=way]'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", selector)
        legend = browser.text("#heat .legend")
        assert ("MiB or more" in legend) != absolute and "no figure" in legend
        pixels = browser.pixels("#heat canvas")
        for tone in {tone for row in cells(browser).values() for tone in row if tone}:
            assert pixels.get(browser.js("return colour('--' + arguments[0])", tone)[1:], 0) > 50, tone
    browser.complaints()  # that pixels were read twice


def test_in_a_pipeline_each_rank_is_held_against_its_own_stage(fleet, browser):
    ledger, page = fleet("stages")
    browser.open(page)
    drawn = cells(browser)
    assert {rank for rank, tones in drawn.items() if set(tones) != {"even"}} == {40}
    assert drawn[40][:9] == ["even"] * 9 and {tone[:4] for tone in drawn[40][9:]} == {"more"}
    words = "const h = window.shardledger.heat; return h.words({x: 9, y: h.rows.findIndex(r => r.ranks.includes(40))})[1]"
    assert browser.js(words) == "+64.0 MiB against rank 32; gpu-node-05"
    assert "against the rank that speaks for its own kind (0, 16, 32, 48)" in browser.text("#fleet-lead")
    assert "Against its kind" in browser.text("#ranks thead")
    assert browser.js("return document.querySelector('#ranks tbody tr').textContent").startswith("40")
    browser.js("const s = document.querySelector('[data-choose=way]'); s.value = 'difference'; s.dispatchEvent(new Event('change'))")
    assert {rank for rank, tones in cells(browser).items() if set(tones) == {"even"}} == set(range(16))
    assert browser.js(words) == "+264.0 MiB against rank 0; gpu-node-05"


def test_a_row_of_several_ranks_shows_the_one_that_differs_most(fleet, browser):
    ledger, page = fleet("large")
    browser.open(page)
    found = browser.js("""const h = window.shardledger.heat;
        return h.rows.filter(r => r.ranks.includes(137)).map(r => [r.ranks, r.unit, r.cells.map(c => c.rank), h.words({x: 9, y: h.rows.indexOf(r)})])""")
    (ranks, unit, shown, (what, where)), = found
    assert ranks == [136, 137, 138, 139] and unit == "gpu-node-17" and shown[8:] == [137] * 4
    assert what == "Rank 137, step 9: 2.29 GiB" and where == "+2.00 GiB against rank 0; gpu-node-17; it differs most of 136–139"
    assert all(len(set(unit)) == 1 for unit in browser.js(
        "const f = new Map(window.shardledger.run.ranks.map(r => [r.rank, r.host])); return window.shardledger.heat.rows.map(r => r.ranks.map(n => f.get(n)))"))
    assert "A row is up to 4 ranks" in browser.text("#fleet-lead")


def place(browser, rank, column):
    return browser.js("""const h = window.shardledger.heat, y = h.rows.findIndex(r => r.ranks.includes(arguments[0]));
        h.canvas.scrollIntoView({block: "center"}); const b = h.canvas.getBoundingClientRect();
        return [b.left + h.left + (arguments[1] + 0.5) * h.cell, b.top + (y + 0.5) * h.height]""", rank, column)


def test_a_cell_opens_its_step_of_its_rank_or_of_the_one_that_stands_for_it(fleet, browser):
    ledger, page = fleet("mesh")
    browser.open(page)
    x, y = place(browser, 20, 4)
    browser.mouse("mouseMoved", x, y)
    browser.wait("return document.getElementById('tip').innerText.startsWith('Rank 20, step 4: 552.0 MiB')")
    browser.mouse("mousePressed", x, y, 1)
    browser.mouse("mouseReleased", x, y)
    browser.wait("return document.getElementById('view').textContent.startsWith('Rank 16 ')")
    assert browser.steps_in_view() == "4"
    assert browser.text("#stand").startswith("Rank 20 is alike rank 16, whose picture stands for it.")
    assert "--rank 20" in browser.text("#stand") and browser.js("return document.getElementById('rank').value") == "20"
    browser.js("window.shardledger.showRank(0)")
    assert browser.text("#stand") == ""


def test_the_heat_map_goes_by_keys_and_says_where_it_is(fleet, browser):
    _, page = fleet("mesh")
    browser.open(page)
    press = "document.querySelector('#heat canvas').dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true, cancelable: true}))"
    for key in ["ArrowDown"] * 18 + ["ArrowRight"] * 3:
        browser.js(press, key)
    assert browser.text("#heat output") == "Rank 17, step 3: 552.0 MiB, +256.0 MiB against rank 0; gpu-node-02"
    browser.js(press, "Enter")
    assert browser.text("#view").startswith("Rank 16 · step 3")


def test_the_table_of_ranks_sorts_and_filters(fleet, browser):
    ledger, page = fleet("large")
    browser.open(page)
    assert browser.texts("#ranks .bars thead th") == ["Rank", "", "Host", "Group", "Peak", "Against 0 ▾", "Step", "Where", "Reserved", "Device", "Ended"]
    first = "return [...document.querySelectorAll('#ranks .bars tbody tr')].map(r => [r.cells[0].innerText, r.cells[2].innerText, r.cells[3].innerText])"
    shown = browser.js(first)
    assert len(shown) == 32 and shown[0] == ["137", "gpu-node-17", "1"] and {rank for rank, _, _ in shown[1:9]} == {str(n) for n in range(64, 72)}
    browser.click("#ranks .bars th:nth-child(5) button")  # Peak
    sizes = "return [...document.querySelectorAll('#ranks .bars tbody td:nth-child(5) [data-bytes]')].map(e => +e.dataset.bytes)"
    peaks = [peak for peak, in rows(ledger, "SELECT peak_allocated_bytes FROM life ORDER BY 1 DESC")]
    assert browser.js(sizes) == peaks[:32]
    browser.click("#ranks .bars th:nth-child(5) button")
    assert browser.js(sizes) == peaks[::-1][:32]
    browser.click("#ranks .bars th:nth-child(1) button")
    browser.click("#ranks .bars .more")
    assert [int(rank) for rank, _, _ in browser.js(first)] == list(range(1024))
    fill = "const f = document.getElementById('rank-filter'); f.value = arguments[0]; f.dispatchEvent(new Event('input'))"
    for words, expected in (("64-66, 137", [64, 65, 66, 137]), ("node-08", range(64, 72)), ("GPU-NODE-127", range(1016, 1024)), ("nobody", [])):
        browser.js(fill, words)
        assert [int(rank) for rank, _, _ in browser.js(first)] == list(expected), words


def test_strips_are_of_the_ranks_that_are_drawn(fleet, browser):
    _, page = fleet("large")
    browser.open(page)
    browser.wait("return document.querySelectorAll('#strips canvas').length === 5")
    assert browser.texts("#strips button") == ["0", "20", "64", "137", "180"]
    browser.js("window.shardledger.strips.draw()")
    assert [text.split("\n")[-1] for text in browser.texts("#strips .number")] == ["950 alike", "alone", "8 alike", "alone", "64 alike"]
    assert "5 of 1,024 ranks" in browser.text("#strips-lead")
    options = browser.js("return [...document.querySelectorAll('#rank option')].map(o => [o.textContent, o.disabled])")
    assert options[137] == ["137", False] and options[136] == ["136 (as 0)", False] and len(options) == 1024
    assert len(browser.texts("#categories thead th")) == 7


def test_the_histogram_counts_every_rank_once(fleet, browser):
    ledger, page = fleet("large")
    browser.open(page)
    bars = browser.js("return [...document.querySelectorAll('#histogram tbody tr')].map(r => [+r.cells[2].innerText.replace(',', ''), r.cells[3].innerText])")
    groups = collections.Counter(peak for peak, in rows(ledger, "SELECT peak_allocated_bytes FROM life"))
    assert [count for count, _ in bars if count] == [count for _, count in sorted(groups.items())]
    assert (1, "137") in map(tuple, bars) and (8, "64–71") in map(tuple, bars)


def test_small_jobs_have_only_what_says_something(fleet, browser):
    parts = {part: f"return document.querySelector('{part}').offsetParent !== null" for part in ("#alike", "#fleet", "#histogram", "#rank-filter")}

    def shown(job):
        browser.open(fleet(job)[1])
        return {part for part, visible in parts.items() if browser.js(visible)}

    assert shown("one") == set()
    assert not browser.driver.find_elements("css selector", "#ranks .bars thead button, #stand:not(:empty)")
    assert Page(fleet("one")[1]).json["heat"] == {"steps": [], "ranks": []}
    assert shown("two") == set()
    assert len(browser.texts("#ranks .bars tbody tr")) == 2 and browser.texts("#ranks .bars thead th")[:3] == ["Rank", "", "Peak"]
    assert shown("six") == {"#alike", "#fleet"}
    assert browser.text("#alike").split("\n")[0].startswith("6 ranks in 2 groups") and len(browser.texts("#strips button")) == 6
    assert shown("large") == set(parts)


@pytest.mark.parametrize("job", ["large", "mesh", "noise", "six"])
@pytest.mark.parametrize("width", [400, 800, 1400])
def test_many_ranks_fit_any_width(job, width, fleet, browser):
    for dark in (False, True):
        browser.open(fleet(job)[1], width=width, dark=dark)
        assert browser.js("return document.documentElement.scrollWidth") <= width
        text = browser.text("#page")
        assert not [word for word in ("NaN", "undefined", "null", "Infinity") if word in text]
        for command in ("whole", "next", "rank", "rank", "peak"):
            browser.js("window.shardledger.command(arguments[0])", command)


@pytest.mark.parametrize("vision", VISIONS)
def test_more_and_less_can_be_told_apart(vision, fleet, browser):
    """As of categories in report_test.py; of one direction, each shade from every other."""
    for dark in (False, True):
        browser.open(fleet("six")[1], dark=dark)
        names = ["even", "paper", *(f"{way}-{n}" for way in ("more", "less") for n in range(1, 5))]
        colours = browser.js("return Object.fromEntries(arguments[0].map(n => [n, colour('--' + n)]))", names)
        seen = {name: lab([min(1, max(0, sum(w * p for w, p in zip(row, linear(value))))) for row in VISIONS[vision]])
                for name, value in colours.items()}
        for first, second in itertools.combinations(names, 2):
            if {first, second} != {"even", "paper"}:
                assert math.dist(seen[first], seen[second]) > 11.5, (first, second, dark)
