"""Pages for the tests of the report, each made once (conftest.py has the fixtures), and what reads and clicks them."""

import base64
import collections
import contextlib
import functools
import json
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
from checks import once
from exported import COMMAND, ROOT

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
def reported():
    """reported(run) → (its ledger, its page)"""

    def make(directory, run):
        shutil.copytree(ROOT / "tests" / "data" / run, directory, dirs_exist_ok=True)
        report(directory, directory / "report.html")

    def get(run):
        directory = once.directory(f"report/{run.replace('/', '-')}/{pathlib.Path(run).name}", lambda directory: make(directory, run))
        return directory / "ledger.sqlite", directory / "report.html"

    return get


@pytest.fixture(scope="session")
def long(reported):
    """1,000 steps of 8 ranks, most of which repeat one of the first: (ledger, page)."""

    def make(directory):
        ledger = long_run.repeat(reported("fsdp2-2rank")[0], directory / "long.sqlite", ranks=8, steps=1000, full_every=10)
        report(ledger, directory / "long.html")

    directory = once.directory("long", make)
    return directory / "long.sqlite", directory / "long.html"


RUNS = ["fsdp2-2rank", "fsdp2-2rank-recompute", "oom-forward-2rank", "oom-optimizer-2rank", "matrix/fsdp1",
        "matrix/cuda-malloc-async", "matrix/late-attach", "matrix/unsharded"]


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
def attacked(reported):
    def make(directory):
        ledger = shutil.copy(reported("fsdp2-2rank")[0], directory / "run.sqlite")
        hostile(ledger)
        report(ledger, directory / "report.html")

    return once.directory("attacked", make) / "report.html"


JOBS = {
    "large": ["--ranks", "1024", "--steps", "12", "--more", "137:2048:2:8", "--more", "64-71:256:1:0", "--more", "180-243:128:3:4",
              "--leak", "20:4:3"],
    "mesh": ["--ranks", "64", "--steps", "12", "--stages", "4", "--mesh", "pp:4", "--mesh", "dp:16", "--more", "16-31:256:1:0",
             "--refused", "37:9:500", "--absent", "50"],
    "stages": ["--ranks", "64", "--steps", "12", "--mesh", "pp:4", "--mesh", "dp:16", "--more", "16-31:100:1:0", "--more", "32-47:200:2:0",
               "--more", "48-63:300:3:0", "--more", "40:64:0:9"],
    "noise": ["--ranks", "24", "--steps", "8", "--noise", "3"],
    "six": ["--ranks", "6", "--steps", "5", "--more", "3:100:1:2"],
    "two": ["--ranks", "2", "--steps", "5"],
    "one": ["--ranks", "1", "--steps", "5"],
}


@pytest.fixture(scope="session")
def fleet():
    """fleet(job) → (its ledger, its page)"""
    make_fleet = COMMAND.with_name("make_fleet")
    if not make_fleet.exists():
        pytest.skip(f"{make_fleet} is not built")

    def make(directory, job):
        subprocess.run([make_fleet, directory, *JOBS[job]], check=True, capture_output=True)
        report(directory, directory / "report.html")

    def get(job):
        directory = once.directory(f"fleet/{job}", lambda directory: make(directory, job))
        return directory / "ledger.sqlite", directory / "report.html"

    return get


@pytest.fixture(scope="session")
def growing(reported):
    """A run whose evaluations keep what they return, recorded before there were sites: made-up ones, by category."""
    directory = once.directory("growing", lambda directory: grown(directory, reported))
    return directory / "run.sqlite", directory / "report.html"


def grown(directory, reported):
    ledger = shutil.copy(reported("life/leak-evaluation")[0], directory / "run.sqlite")
    db = sqlite3.connect(ledger)
    db.executescript("""
        INSERT INTO frame VALUES (1, 0, NULL, 0, 'train.py', 40, 'main', 'user');
        INSERT INTO frame VALUES (2, 0, 1, 1, 'train.py', 12, 'evaluate', 'user');
        INSERT INTO site VALUES (1, 0, 2, 2, 'aten::mm', 'caller'), (2, 0, 1, 1, NULL, 'caller');
        UPDATE allocation SET site_id = iif(category = 'program', 1, 2);
        INSERT INTO peak_site SELECT p.rank, p.period, p.step, a.site_id, a.category, a.module_id, sum(a.bytes), count(*)
          FROM period p JOIN allocation a ON a.rank = p.rank AND a.alloc_ns <= p.peak_ns AND coalesce(a.free_ns > p.peak_ns, 1)
          WHERE p.same_as IS NULL GROUP BY p.rank, p.period, a.site_id, a.category, a.module_id;""")
    db.commit()
    db.close()
    report(ledger, directory / "report.html")


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
        end = time.time() + 120
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
    driver.set_script_timeout(300)
    yield driver
    driver.quit()


@pytest.fixture
def browser(driver):
    """A browser with no complaint of a page, before and after the test."""
    found = Browser(driver)
    found.complaints()
    yield found
    assert found.complaints() == []
