"""Datasette on a ledger, with the file that `export --format datasette` writes: meanings, units, labels and ready questions."""

import json
import re
import subprocess

import pytest
import readers
from exported import COMMAND, ROOT, export, pytestmark, rows  # noqa: F401

ASK = """
import asyncio, json, sys
from datasette.app import Datasette

async def main(ledger, metadata):
    datasette = Datasette([ledger], metadata=json.load(open(metadata)), settings={"sql_time_limit_ms": 20000})
    told = {"pages": {}, "rows": {}}
    async def get(path):
        answer = await datasette.client.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:400])
        return answer
    for name in ("allocation", "peak_owner", "step_summary", "category_at_peak"):
        told["pages"][name] = (await get(f"/ledger/{name}")).text
    for name in (await get("/ledger.json")).json()["queries"]:
        told["rows"][name["name"]] = (await get(f"/ledger/{name['name']}.json?_shape=arrays")).json()["rows"]
    told["labels"] = (await get("/ledger/allocation.json?_labels=on&_shape=objects&_size=max")).json()["rows"]
    print("told", json.dumps(told))
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """https://pypi.org/project/datasette, asked as a browser asks it."""
    place = readers.install("datasette==0.65.5", "setuptools<81")
    ledger, metadata = export("fsdp2-2rank", tmp_path_factory.mktemp("datasette"), "datasette", "metadata.json")
    output = readers.run(place, "-c", ASK, ledger, metadata)
    return ledger, json.loads(metadata.read_text())["databases"]["ledger"], json.loads(output[output.rindex("told ") + 5 :])


def test_every_table_and_view_is_explained_with_its_units(told):
    ledger, metadata, _ = told
    names = [name for name, in rows(ledger, "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")]
    assert set(names) <= set(metadata["tables"])
    for name in names:
        of_table = metadata["tables"][name]
        columns = [column for column, in rows(ledger, "SELECT name FROM pragma_table_info(?)", name)]
        assert of_table["description"] and set(of_table["columns"]) <= set(columns)
        for unit, ending in (("bytes", r"(^|_)bytes$"), ("nanoseconds", "_ns$")):
            assert {column for column, meaning in of_table["columns"].items() if re.search(rf"(^|\(){unit}\)?$", meaning)} == {
                column for column in columns if re.search(ending, column)}, name


def test_pages_show_them(told):
    metadata, pages = told[1], told[2]["pages"]
    assert "one tensor-level allocation of PyTorch" in pages["allocation"]
    assert metadata["tables"]["allocation"]["columns"]["requested_bytes"] in pages["allocation"]
    assert "what was asked for (bytes)" in pages["allocation"] and "(nanoseconds)" in pages["allocation"]
    assert 'data-column-description="bytes"' in pages["step_summary"]


def test_rows_are_named_where_others_refer_to_them(told):
    ledger, _, answers = told
    fqns = dict(rows(ledger, "SELECT id, fqn FROM module"))
    phases = dict(rows(ledger, "SELECT id, name FROM phase"))
    labels = [row for row in answers["labels"] if row["module_id"]]
    assert len(labels) > 100
    for row in labels:
        assert row["module_id"]["label"] == fqns[row["module_id"]["value"]]
    for row in answers["labels"]:
        assert row["phase_id"] is None or row["phase_id"]["label"] == phases[row["phase_id"]["value"]]


def test_its_ready_questions_are_the_pages(told):
    ledger, metadata, answers = told
    page = (ROOT / "docs" / "queries.md").read_text()
    statements = [sql.strip() for sql in re.findall(r"^```sql ?\S*\n(.*?)^```", page, re.M | re.S) if "rank_ranges(" not in sql]
    assert [query["sql"].strip() for query in metadata["queries"].values()] == statements
    titles = re.findall("^## (.*)", page, re.M)
    assert {re.sub(r" \(\d+\)$", "", query["title"]) for query in metadata["queries"].values()} <= set(titles)
    assert answers["rows"].keys() == metadata["queries"].keys()
    for name, query in metadata["queries"].items():
        assert answers["rows"][name] == [list(row) for row in rows(ledger, query["sql"])], name
    assert sum(len(found) > 0 for found in answers["rows"].values()) > len(statements) / 2


def test_the_database_is_named_after_its_file(tmp_path):
    export("life/server", tmp_path, "datasette", "metadata.json")
    (tmp_path / "life" / "server" / "ledger.sqlite").rename(tmp_path / "my.run.sqlite")
    subprocess.run([COMMAND, "export", tmp_path / "my.run.sqlite", "--format", "datasette", "-o", tmp_path / "m.json"], check=True)
    assert list(json.loads((tmp_path / "m.json").read_text())["databases"]) == ["my.run"]
