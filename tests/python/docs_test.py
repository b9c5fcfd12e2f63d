"""The documentation is true: its tables are the sources', its commands run, its links lead somewhere."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from conftest import BUILD, LIBRARIES, PLUGIN

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
RUNS = sorted({log.parent.parent for log in DATA.rglob("*.slog")})  # the recorded run directories
COMMAND = pathlib.Path(BUILD).resolve() / "bin" / "shardledger"
NVTX = os.environ.get("SHARDLEDGER_NVTX_INCLUDE", "/usr/local/cuda/include")
PAGES = sorted((ROOT / "docs").glob("*.md")) + [page for page in [ROOT / "README.md"] if page.exists()]
PLACEHOLDERS = re.compile(r"torchrun|srun|train\.py|…|\b(CMD|DIR|FILE|SQL|MODULE|COMMAND)\b")

needs_command = pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")


def blocks(page, *languages):
    """(line number, text) of the fenced blocks of these languages."""
    for match in re.finditer(r"^```(\w*)\n(.*?)^```", page.read_text(), re.M | re.S):
        if match[1] in languages:
            yield page.read_text()[: match.start()].count("\n") + 2, match[2]


def commands(page):
    """(line number, command) of the runnable shardledger commands in sh blocks."""
    for line, text in blocks(page, "sh"):
        for offset, command in enumerate(text.splitlines()):
            if command.startswith("shardledger ") and not PLACEHOLDERS.search(command):
                yield line + offset, command


def cases(of):
    return [pytest.param(*found, id=f"{page.name}:{found[0]}") for page in PAGES for found in of(page)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """What the pages' examples find: recorded runs, as copies because the command writes ledgers beside the logs."""
    scratch = tmp_path_factory.mktemp("docs")
    for run in DATA.iterdir():
        shutil.copytree(run, scratch / "tests" / "data" / run.name)
    for name in ("shardledger-out", "killed", "killed-job"):
        shutil.copytree(DATA / "fsdp2-2rank", scratch / name)
    for node, process in enumerate(sorted(path for path in (DATA / "fsdp2-2rank").iterdir() if path.is_dir())):
        shutil.copytree(process, scratch / f"node{node}" / "shardledger-out" / process.name)
    return scratch


def environment():
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SHARDLEDGER_")}
    return dict(kept, PATH=os.pathsep.join([str(COMMAND.parent), os.path.dirname(sys.executable), os.environ["PATH"]]))


@needs_command
def test_generated_parts_are_what_the_sources_say():
    done = subprocess.run([sys.executable, ROOT / "scripts" / "update-docs", "--check"], capture_output=True, text=True,
                          env=dict(os.environ, SHARDLEDGER_BUILD_DIR=str(BUILD)))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_command
@pytest.mark.parametrize("line, command", cases(commands))
def test_commands_run(line, command, directory):
    shlex.split(command)  # a command is one line
    done = subprocess.run(["bash", "-c", command], cwd=directory, env=environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=600)
    allowed = (0, 1) if command.startswith("shardledger doctor") else (0,)  # 1: this machine can't record
    assert done.returncode in allowed, done.stderr
    assert done.stdout or command.startswith("shardledger ingest")


def questions():
    """(line number, run, statement, answer) of the page of SQL: each statement has its answer right after it."""
    page = ROOT / "docs" / "queries.md"
    text = page.read_text()
    for match in re.finditer(r"^```sql ?(\S*)\n(.*?)^```\n(?:```text\n(.*?)^```)?", text, re.M | re.S):
        line = text[: match.start()].count("\n") + 2
        yield pytest.param(match[1] or "tests/data/fsdp2-2rank", match[2], match[3], id=f"queries.md:{line}")


@needs_command
@pytest.mark.parametrize("run, statement, answer", list(questions()))
def test_questions_have_the_answers_that_the_page_shows(run, statement, answer, directory):
    done = subprocess.run([COMMAND, "query", statement, run], cwd=directory, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == answer
    assert len(answer.splitlines()) > 1  # a head and something below it


def test_the_commands_are_found():
    """Guards the tests above against matching nothing."""
    assert sum(1 for page in PAGES for _ in commands(page)) > 25
    assert len(list(questions())) > 12


@needs_command
@pytest.mark.parametrize("run", [str(run.relative_to(DATA)) for run in RUNS])
def test_words_in_ledgers_are_explained(run, tmp_path):
    """Rules, categories, states and kinds that real ledgers hold are words of docs/categories.md."""
    page = (ROOT / "docs" / "categories.md").read_text()
    sql = ("SELECT decided_by AS word FROM allocation UNION SELECT category FROM allocation UNION"
           " SELECT detail FROM allocation WHERE detail IS NOT NULL UNION SELECT state FROM snapshot UNION"
           " SELECT kind FROM phase")
    ledger = str(tmp_path / "run.sqlite")
    subprocess.run([COMMAND, "ingest", DATA / run, "-o", ledger], check=True, capture_output=True)
    done = subprocess.run([COMMAND, "query", sql, ledger, "--json"], check=True, capture_output=True, text=True)
    words = [row["word"] for row in _rows(json.loads(done.stdout))]
    assert len(words) > 1  # jobs without modules or steps have few
    assert [word for word in words if f"`{word}`" not in page] == []


def _rows(document):
    return document if isinstance(document, list) else next(v for v in document.values() if isinstance(v, list))


def test_every_difference_to_the_tracker_has_a_reason():
    header = (ROOT / "storage" / "tracker" / "tracker_label.h").read_text()
    names = re.findall(r"^ \*   (\w[\w -]*?)  +\S", header, re.M)
    page = (ROOT / "docs" / "categories.md").read_text()
    assert len(names) >= 8
    assert [name for name in names if f"\n| {name} |" not in page] == []


@needs_command
def test_every_option_of_the_command_is_in_the_table():
    done = subprocess.run([COMMAND, "run", "--help-env"], check=True, capture_output=True, text=True)
    options = re.findall(r"^(\w+)\n.*\n    Values: .*\. Default: (.*)$", done.stdout, re.M)
    page = (ROOT / "docs" / "environment.md").read_text()
    assert len(options) >= 9
    for name, default in options:
        shown = default if default == "empty" else f"`{default}`"
        assert f"\n| `{name}` | {shown} |" in page


def test_the_decoded_record_is_in_the_recorded_log():
    text = (ROOT / "docs" / "log-format.md").read_text()
    offset = int(re.search(r"at byte ([\d,]+) of `00000001.slog`", text)[1].replace(",", ""))
    digits = re.search(r"^(0a 03 .*)$", text, re.M)[1]
    record = bytes.fromhex(digits.replace("|", " "))
    (log,) = (DATA / "versions" / "1").glob("vm-620-*/00000001.slog")
    assert log.read_bytes()[offset : offset + len(record)] == record


def python_blocks(page):
    """Those of a job; those of two pages read what jobs recorded, and fleet_test.py and lake_test.py run them."""
    return blocks(page, "python") if page.name not in ("python.md", "scale.md") else ()


def cpp_blocks(page):
    return blocks(page, "cpp", "c")


@pytest.mark.skipif(not os.path.exists(PLUGIN), reason="the plugin is not built")
@pytest.mark.parametrize("line, code", cases(python_blocks))
@pytest.mark.parametrize("attached", [True, False])
def test_python_examples_run(line, code, attached, tmp_path):
    env = dict(environment(), PYTHONPATH=os.path.join(LIBRARIES, "python"), SHARDLEDGER_DIR=str(tmp_path / "log"),
               SHARDLEDGER_TORCH="off")
    if attached:
        env["NVTX_INJECTION64_PATH"] = PLUGIN
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log").exists() == attached


@pytest.mark.skipif(not os.path.exists(os.path.join(NVTX, "nvtx3")) or not shutil.which("c++"),
                    reason="no NVTX headers or no compiler")
@pytest.mark.parametrize("line, code", cases(cpp_blocks))
def test_native_examples_compile(line, code, tmp_path):
    source = tmp_path / "example.cc"
    source.write_text(code)
    subprocess.run(["c++", "-Wall", "-Werror", f"-I{ROOT / 'nvtx_ranges'}", "-isystem", NVTX, source, "-o",
                    tmp_path / "example", "-ldl"], check=True)
    subprocess.run([tmp_path / "example"], check=True)


def anchor(heading):
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        linked = (page.parent / path) if path else page
        if not linked.exists():
            broken.append(target)
        elif fragment and fragment not in map(anchor, re.findall(r"^#+ (.*)$", linked.read_text(), re.M)):
            broken.append(target)
    assert broken == []
