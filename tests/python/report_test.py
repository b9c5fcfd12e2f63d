"""The report's page: its data against the ledger, and itself in a real browser (Debian's Chromium, without a window)."""

import base64
import collections
import contextlib
import functools
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import time
import zlib

import long_run
import pytest
import readers
import shardledger
from exported import COMMAND, ROOT, pytestmark, rows  # noqa: F401
from shardledger.report import Report

SELENIUM = "selenium==4.27.1"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
UPLOT = ROOT / "viewer" / "report" / "uplot.iife.min.js"
UPLOT_WHEEL = "youplot==1.0.0"  # the package of PyPI that ships it: youplot/vendor/uplot.iife.min.js
UPLOT_SHA256 = "2d27e8ad3d228164525ce213f9dc716f39b4e3aee0cc773fb3491c96cf4921a2"


# ---- the page's data, read by the description in viewer/report/page_timeline.c ----


class Numbers:
    def __init__(self, data, at):
        self.data, self.at = data, at

    def next(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self):
        value = self.next()
        return value >> 1 ^ -(value & 1)


class Window:
    """samples: [(time, {owner: bytes})], the first of them the start."""

    def __init__(self, owners, data, row):
        (self.step, self.start, self.end, self.repeats, self.full, self.events, self.count, self.values, self.times,
         self.difference) = row
        self.owners, self.data = owners, data

    @functools.cached_property
    def samples(self):
        found = []
        if self.repeats >= 0:
            return found
        values, times, at = Numbers(self.data, self.values), Numbers(self.data, self.times), self.start
        held = collections.Counter()
        for i in range(self.count + 1):
            at += times.next() if i else 0
            for _ in range(values.next()):
                owner = values.next()
                held[tuple(self.owners[owner])] += values.signed()
            found.append((at, {owner: bytes for owner, bytes in held.items() if bytes}))
        return found


class Page:
    def __init__(self, path):
        self.html = path.read_text(encoding="utf-8")
        block = re.search(r'<script type="application/octet-stream" id="data">([A-Za-z0-9+/=]*)</script>', self.html)[1]
        whole = zlib.decompress(base64.b64decode(block, validate=True))
        length = int.from_bytes(whole[:4], "little")
        self.json = json.loads(whole[4:4 + length])
        self.samples = whole[4 + length:]
        self.windows = {index["rank"]: [Window(index["owners"], self.samples, row) for row in index["windows"]]
                        for index in self.json["timeline"]}

    def table(self, name):
        return [dict(zip(self.json[name]["columns"], row)) for row in self.json[name]["rows"]]


def report(source, target, *arguments):
    done = subprocess.run([COMMAND, "report", source, "-o", target, *arguments], capture_output=True, text=True,
                          env={k: v for k, v in os.environ.items() if not k.startswith("SHARDLEDGER_")})
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{target}\n"
    return target


@pytest.fixture(scope="session")
def reported(tmp_path_factory):
    """reported(run) → (its ledger, its page)"""
    made = {}

    def get(run):
        if run not in made:
            directory = tmp_path_factory.mktemp("report") / pathlib.Path(run).name
            shutil.copytree(ROOT / "tests" / "data" / run, directory)
            made[run] = (directory / "ledger.sqlite", report(directory, directory / "report.html"))
        return made[run]

    return get


@pytest.fixture(scope="session")
def long(reported, tmp_path_factory):
    """1,000 steps of 8 ranks, most of which repeat one of the first: (ledger, page)."""
    directory = tmp_path_factory.mktemp("long")
    ledger = long_run.repeat(reported("fsdp2-2rank")[0], directory / "long.sqlite", ranks=8, steps=1000, full_every=10)
    return ledger, report(ledger, directory / "long.html")


RUNS = ["fsdp2-2rank", "fsdp2-2rank-recompute", "oom-forward-2rank", "oom-optimizer-2rank", "matrix/fsdp1",
        "matrix/cuda-malloc-async", "matrix/late-attach", "matrix/unsharded"]


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
    (gone,) = run.glob("vm-621-*")
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


def hostile(ledger):
    """Gives every name that a program chooses one that attacks the page."""
    names = ["</script><script>window.attacked = 1</script>", "<img src=x onerror='window.attacked=1'>", "{{script}}",
             "\x1b]0;title\x07\x00", "]]>--><!--<script>", "‮gnp.exe", "a" * 5000]
    db = sqlite3.connect(ledger)
    for i, (module,) in enumerate(db.execute("SELECT id FROM module WHERE fqn <> ''").fetchall()):
        db.execute("UPDATE module SET fqn = ?, class = ? WHERE id = ?", (names[i % len(names)], names[-1 - i % len(names)], module))
    db.execute("UPDATE module SET class = CAST(x'fffe80' AS TEXT) WHERE fqn = ''")
    for table, column in (("phase", "name"), ("allocation", "category"), ("allocation", "detail"), ("rank", "host"),
                          ("peak_category", "category"), ("peak_owner", "category"), ("meta", "value"), ("collective", "operation")):
        old = [word for word, in db.execute(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL")]
        for i, word in enumerate(sorted(old)):
            with contextlib.suppress(sqlite3.IntegrityError):
                db.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (f"{names[i % len(names)]}{i // len(names)}", word))
    db.commit()
    db.close()


@pytest.fixture(scope="session")
def attacked(reported, tmp_path_factory):
    directory = tmp_path_factory.mktemp("attacked")
    ledger = shutil.copy(reported("fsdp2-2rank")[0], directory / "run.sqlite")
    hostile(ledger)
    return report(ledger, directory / "report.html")


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


# ---- in the browser ----


class Browser:
    def __init__(self, driver):
        self.driver = driver

    def open(self, path, width=1400, dark=False):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
        self.driver.get(path if "://" in str(path) else pathlib.Path(path).as_uri())
        self.wait("return document.documentElement.dataset.ready")
        return self

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, script):
        end = time.time() + 30
        while time.time() < end:
            value = self.js(script)
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError(f"never true: {script}\n{self.driver.get_log('browser')}")

    def text(self, selector):
        return self.js("return document.querySelector(arguments[0]).innerText", selector)

    def texts(self, selector):
        return self.js("return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)", selector)

    def click(self, selector):
        self.driver.find_element("css selector", selector).click()

    def keys(self, *keys):
        self.js("document.getElementById('time-area').focus()")
        self.press(*keys)

    def press(self, *keys):
        """Keys for what has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def position(self, at):
        """x, y of a moment in the chart, in the window."""
        return self.js("""const u = window.shardledger.chart.plot; u.over.scrollIntoView({block: "center"});
                          const box = u.over.getBoundingClientRect();
                          return [box.left + u.valToPos(arguments[0], "x"), box.top + box.height / 2]""", at)

    def mouse(self, kind, x, y, buttons=0):
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "buttons": buttons, "clickCount": 1,
                                                                  "button": "left" if kind != "mouseMoved" or buttons else "none"})

    def click_moment(self, at):
        x, y = self.position(at)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, 1)
        self.mouse("mouseReleased", x, y)

    def drag(self, start, end):
        (x, y), (to, _) = self.position(start), self.position(end)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, 1)
        self.mouse("mouseMoved", (x + to) / 2, y, 1)
        self.mouse("mouseMoved", to, y, 1)
        self.mouse("mouseReleased", to, y)

    def view(self):
        return self.js("const c = window.shardledger.chart; return [c.from, c.to]")

    def steps_in_view(self):
        return re.search(r"steps? ([\d–, ]+)", self.text("#view"))[1].strip(" ,")

    def pixels(self, selector):
        """How many pixels of each colour a canvas has."""
        return self.js("""const c = document.querySelector(arguments[0]), found = {};
            const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
            for (let i = 0; i < d.length; i += 4) { const k = d[i] << 16 | d[i + 1] << 8 | d[i + 2];
              if (d[i + 3] === 255) found[k.toString(16).padStart(6, "0")] = (found[k.toString(16).padStart(6, "0")] || 0) + 1; }
            return found""", selector)

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="session")
def driver():
    if not CHROMIUM or not DRIVER:
        pytest.skip("no Chromium with its driver here (Debian: chromium, chromium-driver)")
    with readers.importing(readers.install(SELENIUM)):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def browser(driver):
    """A browser with no complaint of a page, before and after the test."""
    found = Browser(driver)
    found.complaints()
    yield found
    assert found.complaints() == []


@pytest.mark.parametrize("run", RUNS + ["nccl-2rank", "nccl-profiler-only-2rank", "matrix/no-caching"])
@pytest.mark.parametrize("dark", [False, True])
def test_it_opens_without_a_complaint(run, dark, reported, browser):
    ledger, page = reported(run)
    browser.open(page, dark=dark)
    lost, gaps = rows(ledger, "SELECT sum(events_lost), (SELECT count(*) FROM gap) FROM rank")[0]
    assert browser.text("#coverage").startswith(f"{lost} events lost, {gaps} gaps; ")
    assert browser.js("return document.querySelector('#page').innerText").count("NaN") == 0
    assert "undefined" not in browser.text("#page") and "null" not in browser.text("#page")
    for command in ("whole", "in", "next", "right", "left", "previous", "peak", "out", "rank"):
        browser.js("window.shardledger.command(arguments[0])", command)
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")


def test_it_shows_in_the_frame_of_a_notebook(reported, browser, tmp_path):
    with shardledger.open(reported("fsdp2-2rank")[0]) as ledger:
        cell = tmp_path / "cell.html"
        cell.write_text(f"<!doctype html><body>{ledger.report()._repr_html_()}", encoding="utf-8")
    browser.driver.get(cell.as_uri())
    browser.driver.switch_to.frame(0)
    try:
        browser.wait("return document.documentElement.dataset.ready")
        assert browser.text("#coverage").startswith("0 events lost, 0 gaps; ")
        assert browser.js("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.driver.switch_to.default_content()


def test_the_first_screen_says_what_peaks_says(reported, browser):
    ledger, page = reported("fsdp2-2rank")
    done = subprocess.run([COMMAND, "peaks", ledger], capture_output=True, text=True)
    browser.open(page)
    assert browser.text("#coverage") == done.stdout.splitlines()[0]
    head = re.search(r"^Peak (.*) allocated: (rank \d+, step \d+), (.*)$", done.stdout, re.M)
    assert browser.text("#figures > div:first-child").split("\n")[1:] == [head[1], f"{head[2]}, {head[3]}"]


def test_every_layer_is_drawn_in_its_colour(reported, browser):
    _, page = reported("fsdp2-2rank")
    browser.open(page)
    drawn = browser.pixels("#time-chart canvas")
    for category in ("sharded_param", "optstate", "workspace", "activation", "unsharded_param", "sharded_grad"):
        colour = browser.js("return categoryColour(arguments[0])", category)
        assert drawn.get(colour[1:], 0) > 100, category


def test_mouse_and_keys_zoom_to_one_step(reported, browser):
    ledger, page = reported("fsdp2-2rank")
    zero = rows(ledger, "SELECT min(start_ns) FROM rank")[0][0]
    steps = {step: (start - zero, end - zero) for step, start, end in
             rows(ledger, "SELECT step, start_ns, end_ns FROM step WHERE rank = 0")}
    browser.open(page)
    browser.keys("0")
    whole = browser.view()
    assert whole[0] <= 0 and whole[1] >= steps[4][1]
    assert browser.steps_in_view() == "0–4"
    for step in (1, 2, 3):  # by keys
        browser.keys("p" if step == 1 else "n")
        start, end = browser.view()
        assert browser.steps_in_view() == str(step)
        assert start <= steps[step][0] and end >= steps[step][1]
        assert end - start < (steps[step][1] - steps[step][0]) * 1.1
    browser.keys("b")
    assert browser.steps_in_view() == "2"
    browser.keys("0")
    browser.drag(steps[4][0] - 1e6, steps[4][1] + 1e6)  # with the mouse
    assert browser.steps_in_view() == "4"
    browser.keys("0")
    assert browser.view() == whole
    browser.keys("+")
    assert browser.view()[1] - browser.view()[0] == pytest.approx((whole[1] - whole[0]) / 2)


@pytest.mark.parametrize("run", ["fsdp2-2rank", "oom-forward-2rank", "nccl-2rank"])
def test_a_clicked_moment_shows_owners_that_add_up_to_what_was_allocated(run, reported, browser):
    ledger, page = reported(run)
    zero = rows(ledger, "SELECT min(start_ns) FROM rank")[0][0]
    browser.open(page)
    start, end = browser.view()
    moments = []
    for part in (0.2, 0.45, 0.7, 0.95):
        browser.click_moment(start + (end - start) * part)
        at = browser.js("return window.shardledger.at")
        moments.append(at)
        assert at == pytest.approx(start + (end - start) * part, abs=(end - start) / 200)
        shown = browser.js("return [...document.querySelectorAll('#moment tbody [data-bytes]')].map(e => +e.dataset.bytes)")
        if browser.texts("#moment .more"):
            browser.click("#moment .more")
            shown = browser.js("return [...document.querySelectorAll('#moment tbody [data-bytes]')].map(e => +e.dataset.bytes)")
        rank = browser.js("return window.shardledger.view.rank")
        alive = rows(ledger, "SELECT coalesce(sum(bytes), 0) FROM allocation WHERE rank = ? AND alloc_ns <= ? AND"
                             " (free_ns IS NULL OR free_ns > ?)", rank, zero + int(at), zero + int(at))[0][0]
        assert sum(shown) == alive > 0
        assert browser.js("return +document.querySelector('#moment .total').dataset.bytes") == alive
    assert len(set(moments)) == 4


def test_categories_that_came_after_the_peak_are_said(reported, browser):
    """In this run's step 18 a model is made whose tensors are tagged only when it is first used."""
    ledger, page = reported("matrix/unsharded")
    then = rows(ledger, "SELECT bytes FROM category_at_peak WHERE rank = 0 AND step = 18 AND category = 'program'")[0][0]
    browser.open(page)
    browser.js("window.shardledger.showStep(window.shardledger.view.stepByNumber.get(18))")
    assert "Some of it was tagged after this moment" in browser.text("#moment")
    assert then > 0 and "program" not in browser.text("#moment table")
    browser.keys("p")
    assert "tagged after" not in browser.text("#moment")


def test_hovering_tells_what_is_alive_and_which_phase(reported, browser):
    _, page = reported("fsdp2-2rank")
    browser.open(page)
    start, end = browser.view()
    x, y = browser.position((start + end) / 2)
    browser.mouse("mouseMoved", x, y + 100)
    browser.wait("return !document.getElementById('tip').hidden")
    assert re.search(r"MiB\nstep 1, \+[\d.]+ ms · backward", browser.text("#tip"))
    assert {"sharded_param", "optstate", "activation"} <= set(re.findall(r"\w+", browser.text("#tip")))
    assert len(browser.texts("#tip tr.here")) == 1
    x, y = browser.js("""const b = document.getElementById('lanes').getBoundingClientRect(), l = window.shardledger.lanes.lanes[1];
                         return [b.left + b.width / 2, b.top + l.top + 8]""")
    browser.mouse("mouseMoved", x, y)
    browser.wait("return /^backward: /.test(document.getElementById('tip').innerText)")


def test_collectives_are_on_the_time_axis(reported, browser):
    ledger, page = reported("nccl-2rank")
    browser.open(page)
    lanes = browser.js("""return window.shardledger.lanes.lanes.filter(l => l.name.startsWith("NCCL"))
                          .flatMap(l => l.items.map(i => [i.call.operation, i.start, i.end]))""")
    zero = rows(ledger, "SELECT min(start_ns) FROM rank")[0][0]
    assert sorted(lanes) == sorted([operation, start - zero, end - zero] for operation, start, end in rows(
        ledger, "SELECT operation, start_ns, end_ns FROM collective WHERE rank = 0"))
    late = browser.js("return window.shardledger.run.collectives.map(c => [c.rank, c.enqueued, c.late])")
    assert sorted(late, key=str) == sorted(([rank, at - zero, late] for rank, at, late in rows(
        ledger, "SELECT rank, enqueue_ns, late_ns FROM collective_cost")), key=str)
    assert len({late for _, _, late in late}) > 10
    first = next(item for item in lanes if item[0] == "AllGather")
    browser.js("window.shardledger.zoom(arguments[0], arguments[1])", first[1] - 1e5, first[2] + 1e5)
    colour = browser.js("return operationColour('AllGather')")
    assert browser.pixels("#lanes").get(colour[1:], 0) > 100


def test_nothing_moves_once_the_page_is_there(reported, browser):
    """A click that comes while something above it still grows would miss."""
    where = "return [...document.querySelectorAll('h2, th button, .controls *')].map(e => e.getBoundingClientRect().top)"
    browser.open(reported("fsdp2-2rank")[1])
    at_first = browser.js(where)
    browser.wait("const c = [...document.querySelectorAll('#strips canvas')]; return c.length === 2 && c.every(e => e.width > 300)")
    assert browser.js(where) == at_first and len(at_first) > 10


def test_the_module_tree_sorts(reported, browser):
    _, page = reported("fsdp2-2rank")
    browser.open(page)
    tree = browser.texts("#modules tbody td:first-child")
    assert tree[0].startswith("Transformer")
    browser.click("#modules th:nth-child(5) button")  # Own
    sizes = browser.js("return [...document.querySelectorAll('#modules tbody td:nth-child(5) [data-bytes]')].map(e => +e.dataset.bytes)")
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) > 1
    assert browser.js("return document.querySelector('#modules th:nth-child(5)').ariaSort") == "descending"
    browser.driver.switch_to.active_element.send_keys("\n")  # the heading keeps the focus: once more, by key
    assert browser.js("return document.querySelector('#modules th:nth-child(5)').ariaSort") == "ascending"
    browser.click("#modules th:nth-child(1) button")
    assert browser.texts("#modules tbody td:first-child") == tree
    browser.driver.find_element("id", "module-filter").send_keys("blocks.2")
    assert len(browser.texts("#modules tbody tr")) == 1


def test_module_peaks_are_those_of_the_ledger(reported, browser):
    ledger, page = reported("fsdp2-2rank")
    browser.open(page)
    shown = dict(browser.js("""return [...document.querySelectorAll('#modules tbody tr')].map(tr => [tr.querySelector('.fqn').title,
        [...tr.querySelectorAll('[data-bytes]')].map(e => +e.dataset.bytes)])"""))
    for name, forward, backward, own, whole, params, buffers in rows(
            ledger, "SELECT n.name, max(iif(phase = 'forward', allocated_bytes, NULL)), max(iif(phase = 'backward', allocated_bytes, NULL)),"
                    " max(own_bytes), max(own_with_children_bytes), m.param_bytes, m.buffer_bytes FROM peak p JOIN module m ON m.id ="
                    " p.module_id JOIN module_name n ON n.id = m.id WHERE p.rank = 0 AND p.step = 1 GROUP BY m.id"):
        assert shown[name] == [forward, backward, own, whole, params, buffers]
    assert len(shown) == 5


def test_categories_and_ranks_are_side_by_side(reported, browser):
    ledger, page = reported("oom-forward-2rank")
    browser.open(page)
    shown = {row[0]: row[1:] for row in browser.js("""return [...document.querySelectorAll('#categories tbody tr')].map(tr =>
        [tr.cells[0].innerText, ...[...tr.querySelectorAll('[data-bytes]')].map(e => +e.dataset.bytes)])""")}
    told = collections.defaultdict(lambda: [0, 0])
    for rank, category, size in rows(ledger, "SELECT l.rank, category, bytes FROM life l JOIN category_at_peak c ON c.rank = l.rank"
                                             " AND c.period = l.peak_period WHERE bytes > 0"):
        told[category][rank] = size
    assert shown == dict(told)
    browser.click("#ranks tbody tr:nth-child(2) button")
    assert browser.text("#view").startswith("Rank 1 ")


def test_ranks_are_over_each_other_on_the_time_in_view(reported, browser):
    ledger, page = reported("fsdp2-2rank")
    zero = rows(ledger, "SELECT min(start_ns) FROM rank")[0][0]
    browser.open(page)
    browser.keys("0")
    browser.wait("return document.querySelectorAll('#strips canvas').length === 2 && document.querySelector('#strips canvas').width > 300")
    browser.js("window.shardledger.strips.draw()")
    peaks = browser.js("return [...document.querySelectorAll('#strips [data-bytes]')].map(e => +e.dataset.bytes)")
    assert peaks == [peak for _, peak in rows(ledger, "SELECT rank, max(peak_allocated_bytes) FROM step GROUP BY rank ORDER BY rank")]
    assert browser.pixels("#strips canvas").get(browser.js("return categoryColour('optstate')")[1:], 0) > 100
    start, end = (at - zero for at in rows(ledger, "SELECT start_ns, end_ns FROM step WHERE rank = 0 AND step = 0")[0])
    browser.js("window.shardledger.zoom(arguments[0], arguments[1]); window.shardledger.strips.draw()", start, end)
    peaks = browser.js("return [...document.querySelectorAll('#strips [data-bytes]')].map(e => +e.dataset.bytes)")
    assert peaks[0] == rows(ledger, "SELECT peak_allocated_bytes FROM step WHERE rank = 0 AND step = 0")[0][0]


def test_the_device_balance_is_the_ledgers(reported, browser):
    ledger, page = reported("fsdp2-2rank")
    browser.open(page)
    shown = dict(browser.js("""return [...document.querySelectorAll('#device table tbody tr')].map(tr =>
        [tr.cells[0].innerText, +tr.querySelector('[data-bytes]').dataset.bytes])"""))
    used = browser.js("return +document.querySelector('#device tfoot [data-bytes]').dataset.bytes")
    assert sum(shown.values()) == used
    assert (used,) in rows(ledger, "SELECT used_bytes FROM device_sample WHERE rank = 0")
    assert "unexplained" in shown


def test_running_out_of_memory_comes_first(reported, browser):
    ledger, page = reported("oom-forward-2rank")
    browser.open(page)
    said = "Out of memory: rank 0 in step 2: 24.0 MiB asked for by PyTorch’s allocator (its message says 26.0 MiB, the segment for it). "
    assert said in browser.texts("#alerts .alarm")[0]
    zero = rows(ledger, "SELECT min(start_ns) FROM rank")[0][0]
    at, allocated = rows(ledger, "SELECT at_ns, allocated_bytes FROM oom WHERE rank = 0")[0]
    assert browser.js("return window.shardledger.at") == at - zero
    assert browser.js("return +document.querySelector('#moment .total').dataset.bytes") == allocated
    owners = collections.Counter()
    for owner in browser.js("return window.shardledger.view.memory.ownersAt(window.shardledger.at)"):
        owners[owner["category"], owner["detail"], owner["module"]] += owner["bytes"]
    assert owners == {owner[:3]: owner[3] for owner in rows(
        ledger, "SELECT category, coalesce(detail, ''), module_id, sum(bytes) FROM oom_owner WHERE rank = 0 AND at_ns = ?"
                " GROUP BY 1, 2, 3", at)}
    browser.js("window.shardledger.command('whole'); window.shardledger.select(0)")
    browser.click("#alerts .alarm:nth-child(2) button")
    assert browser.text("#view").startswith("Rank 1 ")


def test_what_is_missing_is_shown(tmp_path, browser):
    """A rank whose log was cut: first line, alerts, and the list at the end."""
    run = tmp_path / "killed"
    shutil.copytree(ROOT / "tests" / "data" / "fsdp2-2rank", run)
    (log,) = run.glob("vm-620-*")
    for name, size in (("00000001", 90001), ("0000000a", 130001)):
        os.truncate(log / f"{name}.slog", size)
    (log / "00000008.slog").unlink()
    browser.open(report(run, tmp_path / "report.html"))
    gaps = rows(run / "ledger.sqlite", "SELECT count(*) FROM gap")[0][0]
    lost = rows(run / "ledger.sqlite", "SELECT sum(events_lost) FROM rank")[0][0]
    assert gaps > 0
    assert browser.text("#coverage").startswith(f"{lost:,} events lost, {gaps} gaps; ")
    assert any("Rank 0: the log just stops" in alert for alert in browser.texts("#alerts .alert"))
    assert any(f"{gaps} gaps in the record" in alert for alert in browser.texts("#alerts .alert"))
    assert len([row for row in browser.texts("#missing tbody tr") if "killed" in row or "log" in row]) >= 1
    assert len(browser.driver.find_elements("css selector", "#missing tbody button")) == gaps


def test_repeated_steps_are_drawn_from_the_step_that_they_repeat(long, browser):
    ledger, page = long
    browser.open(page)
    step, same_as, peak = rows(ledger, "SELECT step, same_as, peak_allocated_bytes FROM step WHERE rank = 0 AND same_as IS NOT NULL"
                                       " ORDER BY step LIMIT 1 OFFSET 300")[0]
    assert rows(ledger, "SELECT count(*) FROM allocation WHERE rank = 0 AND step = ?", step) == [(0,)]
    browser.js("window.shardledger.showStep(window.shardledger.view.stepByNumber.get(arguments[0]))", step)
    assert browser.steps_in_view() == str(step)
    assert f"Drawn from step {same_as}, which step {step} repeats" in browser.text("#moment")
    assert browser.js("return window.shardledger.chart.top") == peak
    start, end = browser.view()
    x, y = browser.position((start + end) / 2)
    browser.mouse("mouseMoved", x, y + 60)
    browser.wait(f"return document.getElementById('tip').innerText.includes('repeats step {same_as}')")


def test_steps_too_narrow_to_see_are_drawn_at_their_peaks(long, browser):
    ledger, page = long
    browser.open(page)
    steps = rows(ledger, "SELECT start_ns, end_ns, peak_allocated_bytes FROM step WHERE rank = 0 AND step BETWEEN 200 AND 700 ORDER BY step")
    zero = rows(ledger, "SELECT min(start_ns) FROM rank")[0][0]
    browser.js("window.shardledger.zoom(arguments[0], arguments[1])", steps[0][0] - zero, steps[-1][1] - zero)
    drawn = browser.js("return [...window.shardledger.chart.plot.data[1]]")  # the top of the stack
    assert len(drawn) > 200 and set(drawn[1:]) <= {peak for _, _, peak in steps}
    assert "narrow steps at their highest" in browser.text("#view")


def test_a_thousand_steps_of_eight_ranks_open_within_two_seconds(long, browser):
    """Until it is painted, without a GPU's help. The best of some: this machine may be busy, the reader's is not."""
    _, page = long
    taken = []
    while len(taken) < 8 and min(taken, default=2000) >= 2000:
        browser.open(page)
        taken.append(browser.wait("return window.shardledger.readyAfter"))
    assert min(taken) < 2000, taken
    assert len(browser.texts("#ranks .bars tbody tr")) == 8
    assert browser.js("return window.shardledger.view.steps.length") == 1000


def test_light_and_dark_follow_the_system_and_the_button(reported, browser):
    _, page = reported("fsdp2-2rank")

    def paper():
        return browser.js("return getComputedStyle(document.documentElement).backgroundColor")

    browser.open(page, dark=True)
    dark = paper()
    assert browser.pixels("#time-chart canvas")
    browser.click("#look")
    light = paper()
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(18, 24, 30)")
    browser.js("localStorage.clear()")
    browser.open(page)
    assert paper() == light
    browser.click("#look")
    assert paper() == dark
    browser.js("localStorage.clear()")


def linear(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


# Machado, Oliveira and Fernandes 2009, at full severity: what people see who lack one kind of cones.
VISIONS = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(rgb):
    x, y, z = (sum(weight * part for weight, part in zip(row, rgb)) for row in
               ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0177, 0.1095, 0.8728)))
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("vision", VISIONS)
def test_any_two_categories_can_be_told_apart(vision, reported, browser):
    """CIE76: 2.3 is just noticeable; areas side by side that are five times as far apart are plainly different."""
    for dark in (False, True):
        browser.open(reported("fsdp2-2rank")[1], dark=dark)
        colours = browser.js("return Object.fromEntries([...CATEGORY_COLOUR, ['unattributed', colour('--ink')]])")
        seen = {name: lab([min(1, max(0, sum(w * p for w, p in zip(row, linear(value))))) for row in VISIONS[vision]])
                for name, value in colours.items()}
        for first, second in itertools.combinations(colours, 2):
            assert math.dist(seen[first], seen[second]) > 11.5, (first, second)


def contrast(first, second):
    def luminance(colour):
        r, g, b = linear(colour)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b
    high, low = sorted([luminance(first), luminance(second)], reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_is_legible_in_both_looks(dark, reported, browser):
    """WCAG's AA: 4.5 to 1 for text."""
    browser.open(reported("fsdp2-2rank")[1], dark=dark)
    colours = browser.js("return Object.fromEntries(['ink','quiet','link','alarm','warning','paper','raised','alarm-paper',"
                         "'warning-paper'].map(n => [n, colour('--' + n)]))")
    for text, paper in (("ink", "paper"), ("quiet", "paper"), ("link", "paper"), ("warning", "paper"), ("ink", "raised"),
                        ("ink", "alarm-paper"), ("ink", "warning-paper"), ("paper", "alarm"), ("paper", "warning")):
        assert contrast(colours[text], colours[paper]) >= 4.5, (text, paper)


@pytest.mark.parametrize("width", [390, 800, 1600])
def test_it_fits_narrow_and_wide_windows(width, reported, browser):
    browser.open(reported("oom-forward-2rank")[1], width=width)
    assert browser.js("return document.documentElement.scrollWidth") <= width
    assert browser.js("return document.querySelector('#time-chart canvas').getBoundingClientRect().right") <= width


def test_nothing_can_be_fetched(reported, browser):
    browser.open(reported("fsdp2-2rank")[1])
    assert browser.js("return performance.getEntriesByType('resource').length") == 0
    browser.js("""window.refused = []; addEventListener("securitypolicyviolation", (e) => window.refused.push(e.effectiveDirective));
                  document.body.append(Object.assign(new Image(), {src: "http://localhost:9/x.png"}));
                  fetch("http://localhost:9/").catch(() => {});
                  const s = document.createElement("script"); s.textContent = "window.attacked = 1"; document.body.append(s)""")
    browser.wait("return window.refused.length >= 3")
    assert sorted(browser.js("return window.refused")) == ["connect-src", "img-src", "script-src-elem"]
    assert browser.js("return window.attacked") is None
    browser.complaints()  # these were wanted


def test_hostile_names_stay_text(attacked, browser):
    browser.open(attacked)
    assert browser.js("return window.attacked") is None
    assert any("<img src=x" in text for text in browser.texts("#modules td, #moment td"))
    assert browser.js("return document.querySelectorAll('#page img, #page script').length") == 0
    for command in ("whole", "next", "rank"):
        browser.js("window.shardledger.command(arguments[0])", command)


def test_it_works_inside_a_notebooks_frame(reported, tmp_path, browser):
    """As Jupyter shows an object's HTML: in a frame with the page as its srcdoc, also a sandboxed one."""
    page = reported("fsdp2-2rank")[1]
    sandboxed = Report("run.sqlite", lambda *words: shutil.copy(page, words[-1]))._repr_html_()
    assert "sandbox" in sandboxed
    for frame in (sandboxed, sandboxed.replace('sandbox="allow-scripts"', "")):
        notebook = tmp_path / "notebook.html"
        notebook.write_text(f'<!doctype html><meta charset="utf-8">{frame}', encoding="utf-8")
        browser.driver.get(notebook.as_uri())
        browser.driver.switch_to.frame(0)
        browser.wait("return document.documentElement.dataset.ready")
        browser.keys("0")
        assert browser.steps_in_view() == "0–4"
        browser.click("#look")
        assert len(browser.texts("#moment tbody tr")) > 5
        browser.driver.switch_to.default_content()
