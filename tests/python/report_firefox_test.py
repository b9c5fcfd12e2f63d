"""The report's page in Firefox: what tests/python/report_test.py asks of Chromium, as far as browsers can differ."""

import functools
import pathlib

import firefox
import pytest
import readers
import report_allocations_test
import report_answer_test
import report_fleet_test
import report_holders_test
import report_pages
import report_place_test
import report_test
from exported import pytestmark  # noqa: F401
from report_pages import RUNS


class Browser(report_pages.Browser):
    """Browser's questions, put to Firefox."""

    def open(self, path, width=1400):
        self.driver.ask("browsingContext.setViewport", context=self.driver.tab, viewport={"width": width, "height": 1000})
        self.js("delete document.documentElement.dataset.ready")  # of the page before, which may still answer when navigating is over
        self.driver.ask("browsingContext.navigate", context=self.driver.tab, url=path if "://" in str(path) else pathlib.Path(path).as_uri(), wait="complete")
        self.wait("return document.documentElement.dataset.ready")
        return self

    def js(self, script, *arguments):
        return self.driver.run(script, *arguments)

    def complaints(self):
        self.js("return 0")  # what was said before has come before the answer
        said, self.driver.log = self.driver.log, []
        return [entry["text"] for entry in said]

    def keys(self, *keys):
        self.js("document.getElementById('time-area').focus()")
        self.press(*keys)

    def press(self, *keys):
        self.driver.act("key", *({"type": f"key{way}", "value": key} for key in keys for way in ("Down", "Up")))

    def mouse(self, kind, x, y, buttons=0):
        actions = [{"type": "pointerMove", "x": round(x), "y": round(y)}]
        if kind != "mouseMoved":
            actions.append({"type": "pointerDown" if kind == "mousePressed" else "pointerUp", "button": 0})
        self.driver.act("pointer", *actions)

    def click(self, selector):
        x, y = self.js("""const e = document.querySelector(arguments[0]); e.scrollIntoView({block: "center"});
                          const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]""", selector)
        self.mouse("mousePressed", x, y, 1)
        self.mouse("mouseReleased", x, y)


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """One for all tests, on a system with dark colours."""
    if not firefox.FIREFOX:
        pytest.skip("no Firefox here (Debian: firefox-esr)")
    with readers.importing(readers.install(report_pages.SELENIUM)):  # it brings what speaks WebSocket
        import websocket
    started = firefox.Firefox(websocket, tmp_path_factory.mktemp("firefox"), dark=True)
    yield started
    started.quit()


@pytest.fixture
def browser(process):
    found = Browser(process)
    found.complaints()
    yield found
    assert found.complaints() == []


@pytest.mark.parametrize("run, width", [(run, 1400) for run in RUNS + ["nccl-2rank"]] + [("oom-forward-2rank", 390)])
def test_it_opens_without_a_complaint(run, width, reported, browser):
    _, page = reported(run)
    browser.open(page, width)
    text = browser.text("#page")
    assert "events lost" in browser.text("#coverage") and not [word for word in ("NaN", "undefined", "null") if word in text]
    for command in ("whole", "in", "next", "right", "left", "previous", "peak", "out", "rank"):
        browser.js("window.shardledger.command(arguments[0])", command)
    assert browser.js("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("behaviour", [
    report_test.test_every_layer_is_drawn_in_its_colour,
    report_test.test_mouse_and_keys_zoom_to_one_step,
    functools.partial(report_test.test_a_clicked_moment_shows_owners_that_add_up_to_what_was_allocated, "oom-forward-2rank"),
    report_test.test_hovering_tells_what_is_alive_and_which_phase,
    report_test.test_collectives_are_on_the_time_axis,
    report_test.test_ranks_are_over_each_other_on_the_time_in_view,
    report_test.test_running_out_of_memory_comes_first,
], ids=lambda behaviour: getattr(behaviour, "func", behaviour).__name__.removeprefix("test_"))
def test_it_does_what_it_does_in_chromium(behaviour, reported, browser):
    behaviour(reported=reported, browser=browser)


@pytest.mark.parametrize("behaviour", [
    report_fleet_test.test_the_heat_map_is_ordered_by_host_or_coordinate,
    report_fleet_test.test_a_cell_opens_its_step_of_its_rank_or_of_the_one_that_stands_for_it,
    report_fleet_test.test_the_heat_map_goes_by_keys_and_says_where_it_is,
    report_fleet_test.test_the_table_of_ranks_sorts_and_filters,
    report_fleet_test.test_strips_are_of_the_ranks_that_are_drawn,
], ids=lambda behaviour: behaviour.__name__.removeprefix("test_"))
def test_many_ranks_are_as_in_chromium(behaviour, fleet, browser):
    behaviour(fleet=fleet, browser=browser)


@pytest.mark.parametrize("behaviour", [
    report_holders_test.test_the_picture_by_module_and_line_is_the_ledgers,
    report_holders_test.test_a_click_zooms_and_goes_back,
    report_holders_test.test_keys_go_from_frame_to_frame,
    report_holders_test.test_what_is_searched_for_is_marked_and_summed_up,
    report_holders_test.test_equal_layers_are_one_frame_or_many,
    report_holders_test.test_another_moment_has_its_modules_and_leads_to_the_lines,
], ids=lambda behaviour: behaviour.__name__.removeprefix("test_"))
def test_who_holds_memory_is_as_in_chromium(behaviour, reported, browser):
    behaviour(reported=reported, browser=browser)


@pytest.mark.parametrize("behaviour", [
    functools.partial(report_answer_test.test_the_parts_of_the_device_are_all_of_it, "life/evaluation"),
    functools.partial(report_answer_test.test_the_verdict_is_in_the_words_of_the_commands, "oom-forward-2rank"),
    functools.partial(report_answer_test.test_the_answer_is_on_the_first_screen, "oom-forward-2rank", 1400, 900, "answer"),
    functools.partial(report_answer_test.test_the_answer_is_on_the_first_screen, "life/evaluation", 800, 900, "todo"),
    functools.partial(report_allocations_test.test_what_is_alive_at_a_moment_is_what_the_ledger_says, "life/evaluation"),
    report_allocations_test.test_the_story_is_what_explain_tells,
    report_allocations_test.test_legend_owner_module_and_lane_lead_to_allocations,
    functools.partial(report_allocations_test.test_segments_are_those_of_device, "oom-forward-2rank", "oom"),
    report_allocations_test.test_two_moments_are_compared_owner_by_owner,
    report_place_test.test_the_place_is_in_the_address_and_back_again,
    report_place_test.test_the_time_axis_keeps_its_origin_and_its_unit,
    report_place_test.test_every_button_and_picture_has_a_name,
], ids=lambda behaviour: getattr(behaviour, "func", behaviour).__name__.removeprefix("test_"))
def test_the_answer_and_what_it_leads_to_are_as_in_chromium(behaviour, reported, browser):
    behaviour(reported=reported, browser=browser)


def test_pictures_are_files_as_in_chromium(reported, fleet, browser):
    report_place_test.test_each_picture_is_a_file(*report_place_test.PICTURES[0], reported=reported, fleet=fleet, browser=browser)


def test_growth_is_as_in_chromium(growing, browser):
    report_holders_test.test_growth_is_by_the_line_that_keeps_it(growing=growing, browser=browser)


def test_modules_sort_by_the_heading_that_is_clicked(reported, browser):
    browser.open(reported("fsdp2-2rank")[1])
    browser.click("#modules th:nth-child(5) button")  # Own
    sizes = browser.js("return [...document.querySelectorAll('#modules tbody td:nth-child(5) [data-bytes]')].map(e => +e.dataset.bytes)")
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) > 1


def test_dark_follows_the_system_and_the_button(reported, browser):
    browser.open(reported("fsdp2-2rank")[1])

    def paper():
        return browser.js("return getComputedStyle(document.documentElement).backgroundColor")

    dark = paper()
    browser.click("#look")
    assert (paper(), dark) == ("rgb(255, 255, 255)", "rgb(18, 24, 30)")
    assert browser.pixels("#time-chart canvas")
    browser.js("localStorage.clear()")
