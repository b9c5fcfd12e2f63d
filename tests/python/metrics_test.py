"""`shardledger watch --metrics`: the figures are the ledger's, Prometheus reads them, and nobody who asks can stall it."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from conftest import BUILD
from watch_test import begin_process, finish_process

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
COMMAND = pathlib.Path(BUILD).resolve() / "bin" / "shardledger"
PAGE = ROOT / "docs" / "serve.md"
DASHBOARD = ROOT / "viewer" / "serve" / "grafana" / "shardledger.json"

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")


def needs(program):
    return pytest.mark.skipif(not shutil.which(program),
                              reason=f"{program} is not installed (Debian: apt-get install prometheus)")


def parse(text):
    """{(name, frozenset of labels): value}; a line that the text format does not allow fails."""
    series, types = {}, {}
    for line in text.splitlines():
        if match := re.fullmatch(r"# TYPE (\w+) (gauge|counter)", line):
            assert match[1] not in types
            types[match[1]] = match[2]
        elif not line.startswith("# HELP "):
            match = re.fullmatch(r'(\w+)(?:\{((?:\w+="(?:[^"\\]|\\[\\"n])*",?)*)\})? ([0-9.]+)', line)
            assert match, line
            assert match[1] == list(types)[-1]  # all of a metric together, behind its type
            labels = frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or ""))
            assert (match[1], labels) not in series, line
            series[match[1], labels] = float(match[3])
    assert text.endswith("\n")
    return series


def once(run):
    return subprocess.run([COMMAND, "watch", run, "--once", "--metrics", "-"], check=True, capture_output=True, text=True).stdout


def of(series, name, rank):
    (value,) = (v for (n, labels), v in series.items() if n == f"shardledger_{name}" and ("rank", str(rank)) in labels)
    return value


ENDED = "period < (SELECT max(period) FROM period q WHERE q.rank = :rank)"  # something came behind it
LEDGER = {  # by series: what SQL says of the whole life
    "life_peak_allocated_bytes": "SELECT max(peak_allocated_bytes) FROM period WHERE rank = :rank",
    "life_peak_reserved_bytes": "SELECT max(peak_reserved_bytes) FROM period WHERE rank = :rank",
    "steps_total": f"SELECT count(*) FROM step WHERE rank = :rank AND {ENDED}",
    "step": "SELECT max(step) FROM step WHERE rank = :rank",
    "step_seconds": f"SELECT (end_ns - start_ns) / 1e9 FROM step WHERE rank = :rank AND {ENDED} ORDER BY step DESC LIMIT 1",
    "events_lost_total": "SELECT events_lost FROM rank WHERE rank = :rank",
    "out_of_memory_total": "SELECT count(*) FROM oom WHERE rank = :rank",
    "allocation_retries_total": "SELECT count(*) FROM retry WHERE rank = :rank",
    "steps_differed_total": "SELECT count(*) FROM step WHERE rank = :rank AND checked = 0",
    "running": "SELECT 1 - clean_exit FROM rank WHERE rank = :rank",
    "allocated_bytes": "SELECT sum(bytes) FROM allocation WHERE rank = :rank AND free_ns IS NULL",
    "device_total_bytes": "SELECT device_bytes FROM rank WHERE rank = :rank",
}


@pytest.mark.parametrize("run", ["fsdp2-2rank", "oom-forward-2rank", "killed-2rank", "life/setup-oom"])
def test_figures_are_those_of_the_ledger(run, tmp_path):
    series = parse(once(DATA / run))
    subprocess.run([COMMAND, "ingest", DATA / run, "-o", tmp_path / "run.sqlite"], check=True, capture_output=True)
    with contextlib.closing(sqlite3.connect(tmp_path / "run.sqlite")) as ledger:
        ranks = [rank for rank, in ledger.execute("SELECT rank FROM rank")]
        for rank in ranks:
            for name, sql in LEDGER.items():
                (expected,) = ledger.execute(sql, {"rank": rank}).fetchone() or (None,)
                if expected is not None:
                    assert of(series, name, rank) == pytest.approx(expected, abs=1e-9), (rank, name)
            categories = [v for (n, labels), v in series.items()
                          if n == "shardledger_memory_bytes" and ("rank", str(rank)) in labels]
            assert sum(categories) == of(series, "allocated_bytes", rank)
            assert len([1 for _, labels in series if ("rank", str(rank)) in labels]) <= 30
    assert series["shardledger_ranks", frozenset()] == len(ranks)


@needs("promtool")
@pytest.mark.parametrize("run", ["fsdp2-2rank", "oom-forward-2rank", "killed-2rank"])
def test_promtool_has_nothing_to_say(run):
    done = subprocess.run(["promtool", "check", "metrics"], input=once(DATA / run), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs("promtool")
def test_promtool_takes_the_rules_of_the_page(tmp_path):
    rules = [block for block in re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.M | re.S) if "rules:" in block]
    assert rules
    (tmp_path / "rules.yml").write_text("".join(rules))
    subprocess.run(["promtool", "check", "rules", "--lint-fatal", tmp_path / "rules.yml"], check=True, capture_output=True)


def test_the_page_has_every_series():
    there = set(re.findall(r"^# TYPE (\w+)", once(DATA / "oom-forward-2rank"), re.M))
    text = PAGE.read_text()
    named = {name for name in re.findall(r"shardledger_\w+", text)}
    assert there - named == {"shardledger_build_info", "shardledger_world_size"}
    assert named <= there


@pytest.fixture
def served():
    """(process, port) of a watch that goes on: its run was killed and never ends in order."""
    process = subprocess.Popen([COMMAND, "watch", DATA / "killed-2rank", "--metrics", ":0"], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        yield process, int(re.fullmatch(r"Metrics: http://127\.0\.0\.1:(\d+)/metrics\n", line)[1])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def get(port, path="/metrics", method="GET"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def raw(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(data)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer.decode()


def test_it_answers_what_it_knows_and_refuses_the_rest(served):
    process, port = served
    status, headers, text = get(port)
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert text == once(DATA / "killed-2rank")
    assert int(headers["Content-Length"]) == len(text.encode())
    assert get(port, "/metrics?x=1")[0] == 200
    status, headers, text = get(port, method="HEAD")
    assert status == 200 and int(headers["Content-Length"]) > 0 and text == ""
    assert get(port, "/")[0] == get(port, "/metricsx")[0] == 404
    assert get(port, method="POST")[0] == 405
    assert raw(port, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n").startswith("HTTP/1.1 400 ")
    assert raw(port, b"\r\n\r\n").startswith("HTTP/1.1 400 ")
    assert raw(port, b"GET /metrics\r\n\r\n").startswith("HTTP/1.1 400 ")
    assert raw(port, b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"x" * 8200).startswith("HTTP/1.1 431 ")
    assert get(port)[0] == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0


def test_who_asks_slowly_keeps_others_waiting_for_seconds_only(served):
    _, port = served
    with socket.create_connection(("127.0.0.1", port)) as silent, socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(b"GET /metr")
        begin = time.monotonic()
        assert get(port)[0] == 200
        assert time.monotonic() - begin < 30  # 2 s each, on a busy machine
        assert silent.recv(1) == b""
        assert slow.recv(13) == b"HTTP/1.1 408 "


def test_it_listens_on_loopback_only_unless_told_otherwise(served):
    _, port = served
    listening = pathlib.Path("/proc/net/tcp").read_text()
    assert f"0100007F:{port:04X} " in listening and f"00000000:{port:04X} " not in listening


def test_a_port_in_use_is_refused(served):
    _, port = served
    done = subprocess.run([COMMAND, "watch", DATA / "killed-2rank", "--metrics", f":{port}"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"shardledger: watch: --metrics: :{port} is in use; name another port, or :0 for a free one\n"


def test_before_the_job_starts_there_are_no_ranks(tmp_path):
    process = subprocess.Popen([COMMAND, "watch", tmp_path / "none", "--metrics", tmp_path / "job.prom"],
                               stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 120
        while not (tmp_path / "job.prom").exists():
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.02)
        series = parse((tmp_path / "job.prom").read_text())
        assert series["shardledger_ranks", frozenset()] == 0
        assert {name for name, _ in series} == {"shardledger_ranks", "shardledger_build_info"}
    finally:
        process.kill()
        process.wait()


def test_a_file_follows_the_job_to_its_end(tmp_path):
    run, file = tmp_path / "run", tmp_path / "job.prom"
    recorded = sorted(path for path in (DATA / "fsdp2-2rank").iterdir() if path.is_dir())
    begin_process(recorded[0], run / recorded[0].name)
    process = subprocess.Popen([COMMAND, "watch", run, "--metrics", file], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 300
        while not file.exists() or parse(file.read_text())["shardledger_ranks", frozenset()] == 0:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.02)
        begun = parse(file.read_text())
        for path in recorded:
            finish_process(path, run / path.name)
        while process.poll() is None:
            parse(file.read_text())  # whole at any moment
            assert time.monotonic() < end
        assert process.returncode == 0
        ended = parse(file.read_text())
        assert ended == parse(once(DATA / "fsdp2-2rank"))
        assert (of(begun, "running", 0), of(ended, "running", 0)) == (1, 0)
        assert of(begun, "steps_total", 0) < of(ended, "steps_total", 0)
    finally:
        process.kill()
        process.wait()


# ---- Prometheus and Grafana ----


def expressions():
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_the_dashboard_asks_for_what_there_is():
    text = once(DATA / "oom-forward-2rank")
    there = set(re.findall(r"^# TYPE (\w+)", text, re.M))
    labels = set(re.findall(r'(\w+)="', text)) | {"slurm_job_id"}
    queries = list(expressions())
    queries += [variable["definition"] for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]
                if variable["type"] == "query"]
    named = {name for query in queries for name in re.findall(r"shardledger_\w+", query)}
    assert named and named <= there
    assert {label for query in queries for label in re.findall(r"(\w+)=~", query)} <= labels
    assert there - named <= {"shardledger_build_info", "shardledger_process_info"}  # all else is shown


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


def ask(port, query):
    path = "/api/v1/query?" + urllib.parse.urlencode({"query": query})
    answer = json.loads(get(port, path)[2])
    assert answer["status"] == "success", (query, answer)
    return answer["data"]["result"]


@needs("prometheus")
def test_prometheus_scrapes_it_and_answers_the_dashboard(served, tmp_path):
    _, port = served
    mine = free_port()
    config = {"global": {"scrape_interval": "1s"},
              "scrape_configs": [{"job_name": "training", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
                                   f"--web.listen-address=127.0.0.1:{mine}"], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 300
        while True:
            assert server.poll() is None and time.monotonic() < end, (tmp_path / "log").read_text()
            with contextlib.suppress(OSError, ValueError):
                if len(ask(mine, 'up{job="training"} == 1')) and len(ask(mine, "shardledger_step")) == 2:
                    break
            time.sleep(0.1)
        scraped = {(row["metric"]["__name__"], frozenset((k, v) for k, v in row["metric"].items()
                                                         if k not in ("__name__", "job", "instance"))): float(row["value"][1])
                   for row in ask(mine, '{__name__=~"shardledger_.*"}')}
        assert scraped == parse(once(DATA / "killed-2rank"))
        rows = {}
        for query in expressions():
            query = query.replace("$__rate_interval", "4s")
            for variable in ("job", "node", "rank"):
                query = query.replace(f'"${variable}"', '".*"')
            rows[query] = ask(mine, query)
        assert [query for query in rows if not rows[query] and "[4s]" not in query] == []  # rates want two scrapes
    finally:
        server.terminate()
        server.wait(30)
