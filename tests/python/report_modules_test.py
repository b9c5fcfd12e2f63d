"""The table of modules in the report's page: sorted, searched, and with the ledger's peaks."""

from exported import pytestmark, rows  # noqa: F401


def test_the_module_tree_sorts(reported, browser):
    browser.open(reported("fsdp2-2rank")[1])
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
    titles = browser.js("return [...document.querySelectorAll('#modules tbody .fqn')].map(e => e.title)")
    assert titles and all("blocks.2" in title for title in titles) and "Show" not in browser.text("#modules")


def test_find_looks_through_all_modules_and_says_when_there_is_none(reported, browser):
    ledger, page = reported("fsdp2-2rank")
    browser.open(page)
    find = browser.driver.find_element("id", "module-filter")
    (name,), = rows(ledger, "SELECT m.fqn FROM module m WHERE m.rank = 0 AND NOT EXISTS (SELECT 1 FROM peak p WHERE p.module_id = m.id)"
                            " AND m.fqn LIKE '%.%.%' ORDER BY m.id LIMIT 1")
    assert name not in browser.text("#modules")
    find.send_keys(name)
    assert any(name in shown for shown in browser.js("return [...document.querySelectorAll('#modules tbody .fqn')].map(e => e.title)"))
    find.send_keys("?!")
    assert browser.texts("#modules tbody tr") == [] and f"No module of this rank has ‘{name}?!’" in browser.text("#modules")
    for _ in range(len(name) + 2):
        find.send_keys("\b")
    assert len(browser.texts("#modules tbody tr")) == 5 and "No module" not in browser.text("#modules")


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
