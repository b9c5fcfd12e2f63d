"""Who holds memory, in the report: the sites in its page against the ledger, and the picture of them in a browser.

The run `sites` is of one H200: six blocks of two layers each, half of them recomputed, a function of autograd of its own, 64 MiB
that the program keeps, 30 steps of Adam, and then a request of 16 TiB, which is refused and caught.
"""

import collections
import itertools
import shutil
import sqlite3

import pytest
from exported import pytestmark, rows  # noqa: F401
from report_look_test import contrast
from report_pages import Numbers, Page, report

ESCAPE, ENTER, LEFT, UP, RIGHT, DOWN, HOME = "\ue00c", "\ue007", "\ue012", "\ue013", "\ue014", "\ue015", "\ue011"
MIB = 1 << 20


# ---- the data, read by the description in viewer/report/page_code.c ----


class Code:
    def __init__(self, page):
        code = page.json["code"]
        names = ("rank", "kind", "number", "start", "at", "bytes", "step", "place", "other", "site", "offset")
        self.moments = [dict(zip(names, row)) for row in code["moments"]]
        self.modules, self.texts, self.frames, self.sites, self.samples = (
            code["modules"], code["texts"], code["frames"], code["sites"], page.samples)

    def stack(self, frame):
        """As in the ledger's view stack_path."""
        found = []
        while frame >= 0:
            frame, file, line, function, _ = self.frames[frame]
            found.append(f"{self.texts[function]} {self.texts[file]}" + (f":{line}" if line else ""))
        return " > ".join(reversed(found)) or None

    def site(self, number):
        if number < 0:
            return (None, None, None, None)
        frame, line, operator, of = self.sites[number]
        return (self.stack(frame), self.stack(line), self.texts[operator] or None, self.texts[of] or None)

    def rows(self, moment):
        """[(site, category, module, bytes, allocations)]"""
        numbers = Numbers(self.samples, moment["offset"])
        found = []
        for _ in range(numbers.next()):
            site, category, module, size, count = (numbers.next() for _ in range(5))
            found.append((site - 1, self.texts[category], self.modules[module - 1] if module else None, size, count))
        return found

    def told(self, moment):
        """The same by what the ledger says of a site."""
        found = collections.Counter()
        for site, category, module, size, count in self.rows(moment):
            found[*self.site(site), category, module, "bytes"] += size
            found[*self.site(site), category, module, "allocations"] += count
        return found


SITED = """(SELECT {}, site_id, category, module_id, bytes, allocations FROM {}) c LEFT JOIN site s ON s.id = c.site_id
    LEFT JOIN stack_path f ON f.frame_id = s.frame_id LEFT JOIN stack_path l ON l.frame_id = s.line_id"""


def in_ledger(ledger, number, table, value):
    found = collections.Counter()
    for *what, size, count in rows(ledger, f"""
            SELECT f.full_path, l.full_path, s.operator_name, s.stack_of, c.category, c.module_id, c.bytes, c.allocations
            FROM {SITED.format(number, table)} WHERE c.{number} = ?""", value):
        found[*what, "bytes"] += size
        found[*what, "allocations"] += count
    return found


def test_the_sites_of_every_moment_are_those_of_the_ledger(reported):
    ledger, path = reported("sites")
    code = Code(Page(path))
    zero = rows(ledger, "SELECT min(start_ns) FROM rank")[0][0]
    periods = rows(ledger, "SELECT p.period, w.rows_of, p.peak_allocated_bytes, p.peak_ns FROM period p JOIN period_place w ON"
                           " w.period = p.period ORDER BY p.period")
    peaks = [moment for moment in code.moments if moment["kind"] == "peak"]
    assert [(moment["number"], moment["bytes"], moment["at"] + zero) for moment in peaks] == [
        (period, peak, at) for period, _, peak, at in periods]
    for moment, (_, rows_of, peak, _) in zip(peaks, periods):
        assert sum(size for *_, size, _ in code.rows(moment)) == peak
        assert code.told(moment) == in_ledger(ledger, "period", "peak_site", rows_of)
    (refused,) = [moment for moment in code.moments if moment["kind"] == "refused"]
    at, allocated, asked, site = rows(ledger, """
        SELECT at_ns, allocated_bytes, requested_bytes, full_path FROM oom JOIN site s ON s.id = site_id
        JOIN stack_path USING (frame_id)""")[0]
    assert (refused["at"] + zero, refused["bytes"], refused["other"]) == (at, allocated, asked)
    assert code.site(refused["site"])[0] == site
    assert sum(size for *_, size, _ in code.rows(refused)) == allocated
    assert code.told(refused) == in_ledger(ledger, "at_ns", "oom_site", at)


def test_texts_frames_and_sites_are_there_once_and_only_those_that_are_needed(reported):
    ledger, path = reported("sites")
    page = Page(path)
    code = Code(page)
    for things in (page.json["code"]["texts"], code.frames, code.sites, code.modules):
        assert len({str(thing) for thing in things}) == len(things)
    used = {site for moment in code.moments for site, *_ in code.rows(moment)} | {moment["site"] for moment in code.moments}
    assert used - {-1} == set(range(len(code.sites)))
    needed = {frame for frame, line, *_ in code.sites for frame in (frame, line)} - {-1}
    for frame in sorted(needed, reverse=True):
        while frame >= 0:
            needed.add(frame)
            frame = code.frames[frame][0]
    assert needed == set(range(len(code.frames)))
    assert len(code.sites) < rows(ledger, "SELECT count(*) FROM site")[0][0]  # nor those of what is never alive at a peak
    assert len({moment["offset"] for moment in code.moments}) < len(code.moments) / 5  # equal moments share their rows
    without = Page(reported("versions/1")[1])
    assert without.json["code"] == {"moments": [], "modules": [], "texts": [], "frames": [], "sites": []}


def test_of_too_many_sites_the_page_has_those_of_the_highest_moments(reported, tmp_path, browser):
    """Each of 21 periods with rows of their own gets 4,000 more: 60,000 fit."""
    ledger = shutil.copy(reported("sites")[0], tmp_path / "run.sqlite")
    db = sqlite3.connect(ledger)
    db.execute("""WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
        INSERT INTO peak_site SELECT rank, period, step, site_id, 'made up ' || i, NULL, 0, period FROM n JOIN (
          SELECT rank, period, step, min(site_id) AS site_id FROM peak_site GROUP BY rank, period)""")
    db.commit()
    db.close()
    path = report(ledger, tmp_path / "report.html")
    code = Code(Page(path))
    have = [moment for moment in code.moments if moment["offset"] >= 0]
    assert 10 < len({moment["offset"] for moment in have}) <= 15
    life = rows(ledger, "SELECT peak_period FROM life")[0][0]
    assert {0, life} < {moment["number"] for moment in have if moment["kind"] == "peak"}
    assert path.stat().st_size < 1e6
    left = next(moment["at"] for moment in code.moments if moment["offset"] < 0)
    browser.open(path)
    browser.js("window.shardledger.select(arguments[0])", left)
    assert "The lines of this moment are not in the page: " in browser.text("#holders [data-part=note]")
    assert browser.texts("#holders .frame")


def test_ranks_that_run_the_same_code_share_its_frames(reported, tmp_path, browser):
    ledger = shutil.copy(reported("versions/1")[0], tmp_path / "run.sqlite")
    db = sqlite3.connect(ledger)
    for rank in (0, 1):
        db.executescript(f"""
            INSERT INTO frame VALUES ({10 * rank + 1}, {rank}, NULL, 0, 'train.py', 40, 'main', 'user');
            INSERT INTO frame VALUES ({10 * rank + 2}, {rank}, {10 * rank + 1}, 1, 'model.py', 12, 'forward', 'user');
            INSERT INTO site VALUES ({10 * rank + 5}, {rank}, {10 * rank + 2}, {10 * rank + 2}, NULL, 'caller');
            INSERT INTO peak_site SELECT rank, period, step, {10 * rank + 5}, category, module_id, sum(bytes), sum(allocations)
              FROM peak_owner WHERE rank = {rank} GROUP BY period, category, module_id;""")
    db.commit()
    db.close()
    page = report(ledger, tmp_path / "report.html")
    code = Code(Page(page))
    assert (len(code.frames), len(code.sites)) == (2, 1) and {moment["rank"] for moment in code.moments} == {0, 1}
    for moment in code.moments:
        assert sum(size for *_, size, _ in code.rows(moment)) == moment["bytes"]
    browser.open(page)
    for rank in (1, 0):
        browser.js("window.shardledger.showRank(arguments[0])", rank)
        at_step(browser, 2)
        (peak,) = rows(ledger, "SELECT peak_allocated_bytes FROM step WHERE rank = ? AND step = 2", rank)[0]
        assert frames(browser)[0] == (1, "allocated", peak)
        assert "model.py:12 forward" in {label for _, label, _ in frames(browser)}
        assert browser.text("#holders [data-part=lead]").startswith(f"Alive on rank {rank} at the highest point of step 2: ")


# ---- in the browser ----


def frames(browser):
    """[(level, label, bytes)] in the order of reading."""
    return [tuple(frame) for frame in browser.js(
        "return [...document.querySelectorAll('#holders .frame')].map(e => [+e.ariaLevel, e.dataset.label, +e.dataset.bytes])")]


def at_step(browser, step):
    browser.js("window.shardledger.showStep(window.shardledger.view.stepByNumber.get(arguments[0]))", step)


def choose(browser, by):
    browser.click(f"#holders [data-by={by}]")


def put(browser, selector, value):
    """A value into a field or a list, as a user does."""
    browser.js("""const e = document.querySelector('#holders ' + arguments[0]); e.value = arguments[1];
        e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change'))""", selector, value)


def with_path(ledger, pattern):
    """Bytes of step 3's peak whose call stack is like that."""
    return rows(ledger, "SELECT sum(bytes) FROM site_at_peak JOIN stack_path USING (frame_id) WHERE step = 3 AND path LIKE ?",
                pattern)[0][0]


def widths(browser):
    return browser.js("""const box = document.querySelector('#holders .icicle').getBoundingClientRect();
        return Object.fromEntries([...document.querySelectorAll('#holders .frame')].map(e =>
            [e.dataset.label, e.getBoundingClientRect().width / box.width]))""")


def test_the_picture_by_module_and_line_is_the_ledgers(reported, browser):
    ledger, page = reported("sites")
    browser.open(page)
    at_step(browser, 3)
    browser.click("#holders [data-part=fold]")
    (peak,) = rows(ledger, "SELECT peak_allocated_bytes FROM step WHERE step = 3")[0]
    assert f"at the highest point of step 3: 370.3 MiB ({peak:,} B)" in browser.text("#holders [data-part=lead]")
    found = frames(browser)
    assert found[0] == (1, "allocated", peak)
    told = collections.Counter()
    for name, line, category, size in rows(ledger, """
            SELECT m.fqn, file || ':' || line || ' ' || function, category, sum(bytes) FROM site_at_peak p LEFT JOIN module m
            ON m.id = p.module_id WHERE p.step = 3 GROUP BY 1, 2, 3"""):
        told[name or "no module", (line or "no Python code").replace("/tmp/", ""), category] += size
    path, shown = [], collections.Counter()
    for level, label, size in found:
        path[level - 1:] = [label]
        if level >= 4 and (path[1] == "no module" or level == 5):
            shown[(path[1] if path[1] == "no module" else path[2]), path[-2], path[-1]] += size
    small = {what: size for what, size in told.items() if size < peak / 500}
    assert all(told[what] == size for what, size in shown.items()) and set(told) - set(shown) <= set(small)
    assert sum(shown.values()) + sum(told[what] for what in set(told) - set(shown)) == peak
    lines = browser.js("""return [...document.querySelectorAll('#holders [data-part=lines] tbody tr')].map(tr =>
        [tr.querySelector('.fqn').title, +tr.querySelector('[data-bytes]').dataset.bytes, +tr.cells[4].innerText])""")
    assert [tuple(line) for line in lines] == rows(ledger, """
        SELECT coalesce(file || ':' || line || ' in ' || function, 'no Python code'), sum(bytes), sum(allocations)
        FROM line_at_peak WHERE step = 3 GROUP BY 1 ORDER BY 2 DESC""")


def test_below_each_frame_is_no_more_than_itself(reported, browser):
    _, page = reported("sites")
    browser.open(page)
    for step, by in itertools.product((None, 0, 29), ("module", "stack", "category")):
        if step is not None:
            at_step(browser, step)
        choose(browser, by)
        wide, path = widths(browser), []
        assert wide["allocated"] == pytest.approx(1, abs=0.002)
        sums, held = collections.Counter(), {}
        for level, label, size in frames(browser):
            path[level - 1:] = [label]
            held[tuple(path)] = size
            sums[tuple(path[:-1])] += size
        for node, below in sums.items():
            assert not node or held[node] * 0.99 <= below <= held[node], node


def test_by_call_stack_the_outermost_frame_is_on_top(reported, browser):
    ledger, page = reported("sites")
    browser.open(page)
    at_step(browser, 3)
    choose(browser, "stack")
    found = frames(browser)
    (outer,) = [size for level, label, size in found if level == 2 and label == "<module> job.py:47"]
    assert outer == with_path(ledger, "<module>%")
    assert not [label for _, label, _ in found if "module.py" in label]
    assert {(4, "aten::zeros_like"), (5, "optstate")} <= {(level, label) for level, label, _ in found}
    assert any("(backward)" in label for _, label, _ in found)
    browser.click("#holders [data-part=whole]")
    assert any(label == "Module._call_impl module.py:1790" for _, label, _ in frames(browser))
    choose(browser, "category")
    assert {label: size for level, label, size in frames(browser) if level == 2} == {category: size for category, size in rows(
        ledger, "SELECT category, sum(bytes) FROM site_at_peak WHERE step = 3 GROUP BY 1 HAVING sum(bytes) > 1e6")}


def test_a_click_zooms_and_goes_back(reported, browser):
    _, page = reported("sites")
    browser.open(page)
    at_step(browser, 3)
    before = frames(browser)
    browser.click("#holders [data-label='Net']")
    browser.click("#holders [data-label='job.py:30 main']")
    assert browser.texts("#holders .trail button") == ["allocated", "Net", "blocks.0–5 × 6", "job.py:30 main"]
    assert widths(browser)["job.py:30 main"] == pytest.approx(1, abs=0.002) == widths(browser)["param"]
    assert browser.js("return document.activeElement.dataset.label") == "job.py:30 main"
    browser.press(ESCAPE)
    assert browser.texts("#holders .trail button")[-1] == "blocks.0–5 × 6"
    at_step(browser, 29)  # another moment with the same module stays there
    assert browser.texts("#holders .trail button")[-1] == "blocks.0–5 × 6"
    at_step(browser, 3)
    browser.click("#holders .trail button:first-child")
    assert frames(browser) == before
    browser.click("#holders [data-label='Net']")
    browser.click("#holders [data-label='Net']")  # again: back
    assert frames(browser) == before


def test_keys_go_from_frame_to_frame(reported, browser):
    _, page = reported("sites")
    browser.open(page)
    at_step(browser, 3)
    where = "return document.activeElement.dataset.label"
    browser.js("document.querySelector('#holders .frame[tabindex=\"0\"]').focus()")
    said = []
    for key in (DOWN, RIGHT, LEFT, DOWN, DOWN, UP, ENTER, HOME):
        browser.press(key)
        said.append(browser.js(where))
    blocks = "blocks.0–5 × 6"
    assert said == ["Net", "no module", "Net", blocks, "job.py:39 main", blocks, blocks, "allocated"]
    assert browser.js("return document.querySelectorAll('#holders .frame[tabindex=\"0\"]').length") == 1
    assert browser.js("return document.querySelector('#holders .icicle').getAttribute('role')") == "tree"
    roles = browser.js("""return [...document.querySelectorAll('#holders .frame')].map(e =>
        [e.getAttribute('role'), e.getAttribute('aria-label')])""")
    assert {role for role, _ in roles} == {"treeitem"}
    assert ["treeitem", "blocks.0–5 × 6 (Block); 192.2 MiB, 51.9%; 32.0 MiB each; 96 allocations; most of it optstate"] in roles
    assert browser.text("#holders .said").startswith("allocated; 370.3 MiB, 100.0%")


def test_what_is_searched_for_is_marked_and_summed_up(reported, browser):
    ledger, page = reported("sites")
    browser.open(page)
    at_step(browser, 3)
    choose(browser, "stack")
    put(browser, "[type=search]", "JOB.py:19")
    found = browser.js("return [...document.querySelectorAll('#holders .found')].map(e => [e.dataset.label, +e.dataset.bytes])")
    assert found == [["Block.forward job.py:19", with_path(ledger, "%job.py:19%")]]
    assert browser.text("#holders [data-part=matches]") == "1 frame, 24.0 MiB (6.5%)"
    browser.js("document.querySelector('#holders [type=search]').focus()")
    browser.press(ENTER)
    assert browser.js("return document.querySelectorAll('#holders .found.here').length") == 1
    assert browser.text("#holders .said").startswith("Block.forward, /tmp/job.py:19; ")
    for words, told in (("no such line", "nothing"), ("", "")):
        put(browser, "[type=search]", words)
        assert browser.text("#holders [data-part=matches]") == told
    assert not browser.texts("#holders .searching")


def test_equal_layers_are_one_frame_or_many(reported, browser):
    _, page = reported("sites")
    browser.open(page)
    at_step(browser, 3)
    folded = {label: size for level, label, size in frames(browser) if level == 3 and label.startswith("blocks")}
    browser.click("#holders [data-part=fold]")
    apart = {label: size for level, label, size in frames(browser) if level == 3 and label.startswith("blocks")}
    assert folded == {"blocks.0–5 × 6": sum(apart.values())}
    assert list(apart) == [f"blocks.{n}" for n in range(6)] and len(set(apart.values())) == 1
    browser.click("#holders [data-part=fold]")
    browser.js("window.shardledger.select(window.shardledger.view.stepByNumber.get(3).peak_at - 3e6)")
    differ = {label: size for level, label, size in frames(browser) if level == 3 and label.startswith("blocks")}
    assert set(differ) == {"blocks.4–5 × 2", "blocks.0–1 × 2", "blocks.2", "blocks.3"}  # backward is in the fourth block


def test_another_moment_has_its_modules_and_leads_to_the_lines(reported, browser):
    _, page = reported("sites")
    browser.open(page)
    at = browser.js("return window.shardledger.view.stepByNumber.get(3).peak_at")
    browser.js("window.shardledger.select(arguments[0])", at - 3e6)
    whole = browser.js("return +document.querySelector('#moment .total').dataset.bytes")
    assert frames(browser)[0] == (1, "allocated", whole)
    assert not [label for _, label, _ in frames(browser) if "job.py" in label]
    assert browser.js("return document.querySelector('#holders [data-by=stack]').disabled")
    assert browser.text("#holders [data-part=note] button") == "Lines at the highest point of step 3"
    browser.click("#holders [data-part=note] button")
    assert browser.js("return window.shardledger.at") == at
    assert [label for _, label, _ in frames(browser) if "job.py" in label]


def test_a_refused_request_has_its_stack_and_who_held_memory_then(reported, browser):
    ledger, page = reported("sites")
    browser.open(page)
    assert "Asked for at /tmp/job.py:44 in main." in browser.texts("#alerts .alarm")[0]
    assert browser.text("#holders [data-part=request]") == (
        "The request for 16.00 TiB came from <module> job.py:47 › main job.py:44.")
    (allocated,) = rows(ledger, "SELECT allocated_bytes FROM oom")[0]
    assert frames(browser)[0] == (1, "allocated", allocated)
    assert browser.js("return document.querySelector('#holders select').value") == "refused0"
    put(browser, "select", "life")
    at, peak = rows(ledger, "SELECT p.peak_ns - r.start_ns, l.peak_allocated_bytes FROM life l JOIN period p ON period = peak_period"
                            " JOIN rank r")[0]
    assert browser.js("return window.shardledger.at") == at and frames(browser)[0][2] == peak
    assert not browser.texts("#holders [data-part=request]:not([hidden])")


def test_growth_is_by_the_line_that_keeps_it(growing, browser):
    ledger, page = growing
    browser.open(page)
    put(browser, "select", "growth")
    (grown, early, late), = rows(ledger, "SELECT grown_bytes, from_step, to_step FROM rank_growth")
    assert frames(browser)[0] == (1, "growth", grown) and grown == 40 * MIB
    assert [label for _, label, _ in frames(browser)] == ["growth", "Sequential", "3", "train.py:12 evaluate", "program"]
    assert browser.text("#holders [data-part=lead]") == (
        f"What owners that grow made since the end of step {early} and still held at the end of step {late}: 40.0 MiB"
        f" ({grown:,} B).")
    choose(browser, "stack")
    assert [label for _, label, _ in frames(browser)] == [
        "growth", "main train.py:40", "evaluate train.py:12", "aten::mm", "program"]
    at_step(browser, late)
    assert "at the highest point of step" in browser.text("#holders [data-part=lead]")


@pytest.mark.parametrize("run", ["versions/1", "oom-loss-2rank"])
def test_a_run_without_sites_says_why_and_shows_modules(run, reported, browser):
    _, page = reported(run)
    browser.open(page)
    note = browser.text("#holders [data-part=note]")
    assert note.startswith("No lines of code: ") and "SHARDLEDGER_STACKS=auto" in note and note.count(". ") == 0
    assert frames(browser)[0][2] == browser.js("return +document.querySelector('#moment .total').dataset.bytes") > 0
    assert any(label.startswith("blocks.") for _, label, _ in frames(browser))


def test_hovering_a_frame_tells_bytes_share_allocations_and_categories(reported, browser):
    _, page = reported("sites")
    browser.open(page)
    at_step(browser, 3)
    x, y = browser.js("""const e = document.querySelector("#holders [data-label='job.py:18 Block.forward']");
        e.scrollIntoView({block: "center"});
        const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + 5]""")
    browser.mouse("mouseMoved", x, y)
    text = browser.wait("const t = document.getElementById('tip'); return t.hidden ? '' : t.innerText")
    assert "/tmp/job.py:18 in Block.forward" in text and "% of all" in text and "allocations" in text and "by aten::" in text


@pytest.mark.parametrize("width, dark", [(390, False), (800, True), (1400, False)])
def test_the_picture_fits_its_window_and_its_words_are_legible(width, dark, reported, browser):
    browser.open(reported("sites")[1], width=width, dark=dark)
    at_step(browser, 3)
    for by in ("module", "stack", "category"):
        choose(browser, by)
        assert browser.js("return document.documentElement.scrollWidth") <= width
        assert browser.js("""return Math.max(...[...document.querySelectorAll('#holders .frame')].map(e =>
            e.getBoundingClientRect().right))""") <= width
    inks = browser.js("return [...CATEGORY_COLOUR.values()].map(fill => [inkOn(fill), fill])")
    assert len(inks) > 15 and all(contrast(ink, fill) >= 4.5 for ink, fill in inks)


def test_it_prints_without_its_controls(reported, browser):
    browser.open(reported("sites")[1])
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert browser.js("return getComputedStyle(document.querySelector('#holders .toolbar')).display") == "none"
        assert browser.js("return getComputedStyle(document.querySelector('#holders .frame')).printColorAdjust") == "exact"
        assert browser.js("return document.querySelector('#holders .icicle').getBoundingClientRect().height") > 60
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_hostile_names_of_code_stay_text(reported, tmp_path, browser):
    ledger = shutil.copy(reported("sites")[0], tmp_path / "run.sqlite")
    name = "<img src=x onerror='window.attacked=1'></script>"
    db = sqlite3.connect(ledger)
    db.execute("UPDATE frame SET file = ? || file, function = ? || function", (name, name))
    db.execute("UPDATE site SET operator_name = ? || operator_name", (name,))
    db.execute("UPDATE source SET reason = ?", (name,))
    db.commit()
    db.close()
    browser.open(report(ledger, tmp_path / "report.html"))
    for by in ("module", "stack", "category"):
        choose(browser, by)
        assert any("<img src=x" in label for _, label, _ in frames(browser))
    assert browser.js("return [window.attacked, document.querySelectorAll('#page img').length]") == [None, 0]


def test_a_caller_that_is_its_own_caller_ends(reported, tmp_path):
    ledger = shutil.copy(reported("sites")[0], tmp_path / "run.sqlite")
    db = sqlite3.connect(ledger)
    db.execute("UPDATE frame SET caller_id = id WHERE depth = 3")
    db.commit()
    db.close()
    code = Code(Page(report(ledger, tmp_path / "report.html")))
    assert len(code.frames) < 20000
