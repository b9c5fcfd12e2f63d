"""The place in the report is in its address, and each picture is a file; faults that were seen once stay away."""

import base64
import re
import shutil
import sqlite3
import xml.dom.minidom

import pytest
from exported import pytestmark, rows  # noqa: F401
from report_pages import report

STATE = """const {view, chart, at, holders, allocations, compare} = window.shardledger;
    return [view.rank, Math.round(chart.from), Math.round(chart.to), Math.round(at), holders.by, allocations.find.value, allocations.chosen, compare.first && compare.first.rank]"""


def address(browser):
    return browser.js("return location.href")


def settled(browser):
    """The address once the place is in it."""
    browser.wait("const {reading} = window.shardledger; return reading.words() === reading.written && location.hash === reading.written")
    return address(browser)


def test_the_place_is_in_the_address_and_back_again(reported, browser):
    ledger, page = reported("fsdp2-2rank")
    browser.open(page)
    assert "#" not in address(browser)  # nobody went anywhere yet
    browser.js("window.shardledger.command('rank'); window.shardledger.command('next')")
    first, there = settled(browser), browser.js(STATE)
    browser.js("""const app = window.shardledger; app.compare.keep(); app.command('previous'); app.holders.by = 'category'; app.holders.draw();
        app.pick('optstate'); app.chooseAllocation(app.allocations.alive(app.view, app.at)[0].id)""")
    second, here = settled(browser), browser.js(STATE)
    assert first != second and there != here
    browser.js("history.back()")
    browser.wait(f"return location.href === {first!r}")
    assert browser.js(STATE) == there
    for target, state in ((second, here), (first, there)):  # mailed: opened anew
        browser.open(reported("life/evaluation")[1])
        browser.open(target)
        assert browser.js(STATE) == state


@pytest.mark.parametrize("hash", ["#rank=99&from=1&to=2&at=3", "#advice", "#rank=0&from=x&to=-5&at=&zoom=%5B&with=7,7", "#rank=0&from=5&to=5&at=99999999999999999&zoom=[\"nothing\"]"])
def test_an_address_that_names_no_place_opens_the_page_as_ever(hash, reported, browser):
    page = reported("fsdp2-2rank")[1]
    browser.open(page)
    browser.open(f"{page.as_uri()}{hash}")
    assert browser.text("#verdict").startswith("Peak ") and browser.js("return window.shardledger.chart.to > window.shardledger.chart.from")
    assert browser.js("return window.shardledger.view.rank") == 0


SAVED = """window.saved = []; download = (blob, name) => { const r = new FileReader(); r.onload = () => window.saved.push([name, r.result]); r.readAsDataURL(blob); };
    window.wanted = [...document.querySelectorAll('.save button')].filter(b => b.offsetParent && b.click() === undefined).length"""


PICTURES = [("fsdp2-2rank", {"answer", "steps", "timeline", "holders", "segments", "ranks-over-time", "device"}),
            ("large", {"answer", "steps", "timeline", "holders", "segments", "ranks-over-time", "ranks"})]


@pytest.mark.parametrize("job, names", PICTURES)
def test_each_picture_is_a_file(job, names, reported, fleet, browser):
    browser.open(reported(job)[1] if job == "fsdp2-2rank" else fleet(job)[1])
    canvas = browser.js("return HTMLCanvasElement.prototype.getContext.toString()")
    browser.js(SAVED)
    browser.wait("return window.saved.length === window.wanted")
    files = {name: base64.b64decode(url.split(",", 1)[1]) for name, url in browser.js("return window.saved")}
    kinds = {re.sub(r"^.*?-(answer|steps|timeline|holders|segments|ranks-over-time|ranks|device)\.", r"\1.", name): data for name, data in files.items()}
    assert {name.rsplit(".", 1)[0] for name in kinds} == names
    for name in names:
        document = xml.dom.minidom.parseString(kinds[f"{name}.svg"])
        shapes = sum(len(document.getElementsByTagName(tag)) for tag in ("path", "rect"))
        assert shapes > 5 and document.getElementsByTagName("text"), name
        assert kinds[f"{name}.png"][:8] == b"\x89PNG\r\n\x1a\n" and len(kinds[f"{name}.png"]) > 5000, name
    assert browser.js("return HTMLCanvasElement.prototype.getContext.toString()") == canvas
    colours = browser.js("return window.shardledger.layers.filter((_, i) => window.shardledger.view.memory.layersAt(window.shardledger.at)[i] > 0).map(categoryColour)")
    assert colours and all(colour in kinds["timeline.svg"].decode() for colour in colours)


# ---- faults that were seen ----


def ticks(browser):
    return browser.js("return window.shardledger.chart.plot.axes[0]._values.filter(Boolean)")


def test_the_time_axis_keeps_its_origin_and_its_unit(reported, browser):
    """What a tick says is its time since the run's start, in every view."""
    browser.open(reported("life/evaluation")[1])
    for command in ("whole", "peak", "in", "in", "next", "whole"):
        browser.js("window.shardledger.command(arguments[0])", command)
        shown = browser.js("const a = window.shardledger.chart.plot.axes[0]; return a._splits.map((at, i) => [at, a._values[i]]).filter(([, text]) => text)")
        assert len(shown) >= 2
        for at, text in shown:
            number, unit = text.split(" ")
            assert unit == "s" and abs(float(number.replace(",", "")) - at / 1e9) < 1e-8, (command, at, text)
        assert len({text for _, text in shown}) == len(shown)


@pytest.mark.parametrize("width", [400, 1400])
def test_ticks_have_as_many_digits_as_tell_them_apart(width, reported, browser):
    browser.open(reported("oom-forward-2rank")[1], width=width)
    assert len(ticks(browser)) >= 2 and all(re.fullmatch(r"\d+\.\d{1,3} s", text) for text in ticks(browser)), ticks(browser)


def test_a_tick_has_no_four_digits_before_the_point_below_a_second(browser, reported):
    browser.open(reported("fsdp2-2rank")[1])
    for end in (900, 14_000, 999_000, 14_000_000, 999_000_000):
        texts = browser.js("return timeTicks(0, arguments[0], 7).map(at => formatTimeTick(at, roundUp(arguments[0] / 7), arguments[0]))", end)
        assert all(re.fullmatch(r"\d{1,3}(\.\d+)? (ns|µs|ms)", text) for text in texts) and len(set(texts)) == len(texts) > 3


def test_lanes_without_anything_in_view_are_folded(reported, browser):
    browser.open(reported("matrix/fsdp2-shapes")[1])
    lanes = """const {lanes, chart} = window.shardledger;
        return [lanes.lanes.map(l => [l.name, l.name === 'steps' || lanes.visible(l).length > 0]), lanes.shown.map(l => l.name), lanes.folded, lanes.height]"""
    every, shown, folded, height = browser.js(lanes)
    assert shown == [name for name, is_there in every if is_there] and folded == len(every) - len(shown) > 0
    browser.js("window.shardledger.command('whole')")
    *_, whole_height = browser.js(lanes)
    assert whole_height > height


def test_unattributed_bytes_are_named_among_what_is_missing(reported, browser, tmp_path):
    """50.0% unattributed stood beside "What is missing: Nothing"."""
    ledger = shutil.copy(reported("nccl-2rank")[0], tmp_path / "unknown.sqlite")
    with sqlite3.connect(ledger) as db:
        for table in ("allocation", "peak_category", "peak_owner"):
            db.execute(f"UPDATE {table} SET category = 'unattributed'")
    browser.open(report(ledger, tmp_path / "unknown.html"))
    (size,), = rows(ledger, "SELECT sum(peak_allocated_bytes) FROM life")
    assert "(100.0%) unattributed at the peak" in browser.text("#coverage") and size
    said = browser.text("#missing")
    assert "(100.0%) of what was allocated at the peaks is unattributed" in said and not said.startswith("Nothing")


def test_colours_are_the_ledgers(reported, browser):
    ledger, page = reported("fsdp2-2rank")
    browser.open(page)
    for name, colour in rows(ledger, "SELECT name, colour FROM category WHERE colour IS NOT NULL"):
        assert browser.js("return categoryColour(arguments[0])", name) == colour


def test_every_button_and_picture_has_a_name(reported, browser):
    """As screen readers need it."""
    browser.open(reported("oom-forward-2rank")[1])
    assert browser.js("""return [...document.querySelectorAll('button, select, input, [role=img], [role=application], [role=region]')].filter(e => e.checkVisibility?.() !== false)
        .filter(e => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.innerText || e.textContent || e.labels?.length)).map(e => e.outerHTML.slice(0, 100))""") == []
