"""How the report's page looks: light and dark, colours that can be told apart, narrow windows, hostile names, notebooks."""

import itertools
import math
import shutil

import pytest
from exported import pytestmark  # noqa: F401
from shardledger._companion.answers.report import Report


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
