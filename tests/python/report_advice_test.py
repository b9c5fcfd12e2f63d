"""What would help, in the report: it says what 'shardledger advise' says."""

import json
import shutil
import sqlite3
import subprocess

import pytest
from exported import COMMAND, ROOT, pytestmark, rows  # noqa: F401
from report_pages import Page, report

DEAD = ["advice/fragmented", "advice/leak", "advice/setup", "advice/oom-first-adamw", "oom-limit-2rank", "life/first-adamw-oom"]


def advise(ledger, *arguments):
    done = subprocess.run([COMMAND, "advise", ledger, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("run", DEAD)
def test_the_page_has_what_advise_says(run, reported):
    ledger, page = reported(run)
    advice = Page(page).json["advice"]
    said, text = json.loads(advise(ledger, "--json")), advise(ledger)
    assert advice["said"] == said
    assert advice["lines"] and all(line in text for line in advice["lines"].splitlines())
    assert (advice["rank"], advice["step"]) == (said["goal"][0]["rank"], said["goal"][0]["step"])


@pytest.mark.parametrize("run", ["fsdp2-2rank", "killed-2rank", "life/leak-varied"])
def test_a_run_that_no_refused_request_ended_has_advice_on_its_highest_peak(run, reported):
    ledger, page = reported(run)
    advice = Page(page).json["advice"]
    assert advice["said"] == json.loads(advise(ledger, "--json")) and advice["refused"] is False


def test_a_run_that_is_not_fit_for_advice_says_why(reported):
    ledger, page = reported("life/server-leak")
    done = subprocess.run([COMMAND, "advise", ledger], capture_output=True, text=True)
    advice = Page(page).json["advice"]
    assert done.returncode == 2 and advice["why"] and done.stderr.endswith(f"{advice['why']}\n") and "said" not in advice


@pytest.mark.parametrize("run", DEAD)
@pytest.mark.parametrize("dark", [False, True])
def test_the_box_shows_the_first_of_it_and_fits_the_page(run, dark, reported, browser):
    ledger, page = reported(run)
    browser.open(page, dark=dark)
    able = [item for item in json.loads(advise(ledger, "--json"))["advice"]
            if item["fits"] != "refused" and (not item["why"] or item["standing"] == "not predicted")]
    shown = browser.js("""return [...document.querySelectorAll('#advice tbody tr')].map(tr =>
        [tr.cells[0].innerText, tr.cells[1].innerText])""")
    assert shown == [[item["what"], item["fits_words"]] for item in able[:6]] and shown
    text = browser.text("#advice")
    assert able[0]["code"] in text and "shardledger advise" in text
    assert "undefined" not in text and "null" not in text and "NaN" not in text
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")


def test_figures_are_those_of_the_first_advice(reported, browser):
    ledger, page = reported("advice/temporaries")
    browser.open(page)
    first = json.loads(advise(ledger, "--json"))["advice"][0]
    shown = browser.js("""return [...document.querySelectorAll('#advice tbody tr:first-child [data-bytes]')].map(e =>
        +e.dataset.bytes)""")
    assert shown == [first["about_bytes"], first["before_bytes"], first["after_bytes"]]


@pytest.mark.parametrize("run, width", [("advice/leak", 390), ("advice/leak", 820), ("life/evaluation", 390)])
def test_it_is_no_wider_than_a_small_window(run, width, reported, browser):
    browser.open(reported(run)[1], width=width)
    assert browser.js("return document.documentElement.scrollWidth <= innerWidth")


def test_the_box_is_bounded_where_much_could_be_said(reported, browser):
    browser.open(reported("advice/fragmented")[1])
    assert browser.js("return document.querySelectorAll('#advice tbody tr').length") <= 6
    assert "1 more change that may help less; 2 changes that can’t help, and why: shardledger advise" in browser.text("#advice")
    assert len(browser.text("#advice")) < 3000


def test_a_hostile_class_name_is_text(reported, browser, tmp_path):
    """It is named by the advice on activation checkpointing."""
    ledger = shutil.copy(reported("advice/sharded")[0], tmp_path / "hostile.sqlite")
    name = "</script><img src=x onerror=document.title='taken'>"
    with sqlite3.connect(ledger) as database:
        database.execute("UPDATE module SET class = ? WHERE class = 'Block'", (name,))
    page = report(ledger, tmp_path / "hostile.html")
    browser.open(page)
    assert name in browser.text("#advice") and browser.js("return document.title") != "taken"
    assert browser.js("return document.querySelectorAll('#advice img').length") == 0
