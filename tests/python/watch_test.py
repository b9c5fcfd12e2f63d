"""`shardledger watch` as it is used: on a terminal, on a run that grows, and in scripts."""

import codecs
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from conftest import BUILD

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = ROOT / "tests" / "data" / "fsdp2-2rank"
COMMAND = pathlib.Path(BUILD).resolve() / "bin" / "shardledger"
HEADER = 64  # of a segment

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason=f"{COMMAND} is not built")


class Screen:
    """What a terminal shows: lines, the cursor, the other screen. Knows the sequences that watch may use, no others."""

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.lines, self.other = [""], None
        self.row = self.column = 0
        self.cursor_visible = True
        self.widest = 0
        self.rest = ""

    def feed(self, text):
        text = self.rest + text
        self.rest = re.search(r"(\x1b(\[[?0-9;]*)?)?\Z", text)[0]  # a sequence whose end is still to come
        text = text[: len(text) - len(self.rest)]
        for token in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
            if token == "\x1b[?1049h":
                self.other, self.lines, self.row, self.column = (self.lines, self.row), [""], 0, 0
            elif token == "\x1b[?1049l":
                (self.lines, self.row), self.other, self.column = self.other, None, 0
            elif token in ("\x1b[?25l", "\x1b[?25h"):
                self.cursor_visible = token.endswith("h")
            elif token == "\x1b[H":
                self.row = self.column = 0
            elif token == "\x1b[K":
                self.lines[self.row] = self.lines[self.row][: self.column]
            elif token == "\x1b[J":
                del self.lines[self.row + 1 :]
                self.lines[self.row] = self.lines[self.row][: self.column]
            elif token.startswith("\x1b["):
                assert token.endswith("m"), repr(token)
            elif token == "\r":
                self.column = 0
            elif token == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            else:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + token + line[self.column + len(token) :]
                self.column += len(token)
                self.widest = max(self.widest, self.column)

    @property
    def text(self):
        return "\n".join(self.lines)


class Watch:
    """The command on a terminal of its own."""

    def __init__(self, *arguments, columns=100, rows=30, **environment):
        master, slave = pty.openpty()
        self.master, self.screen = master, Screen(columns, rows)
        self.decoder = codecs.getincrementaldecoder("utf-8")()  # what comes may end within a character
        self.resize(columns, rows)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("SHARDLEDGER_") and k != "NO_COLOR"}
        environment = {**clean, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment}
        self.process = subprocess.Popen([COMMAND, "watch", *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave,
                                        env=environment, start_new_session=True)
        os.close(slave)
        self.raw = ""

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.columns, self.screen.rows, self.screen.widest = columns, rows, 0

    def read(self, seconds):
        """Feeds the screen with what comes; False at the end."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # the other end is closed
            return False
        text = self.decoder.decode(data)
        self.raw += text
        self.screen.feed(text)
        return bool(data)

    def shows(self, pattern, seconds=300):
        end = time.monotonic() + seconds
        while not re.search(pattern, self.screen.text):
            assert time.monotonic() < end, f"{pattern!r} does not come:\n{self.screen.text}"
            assert self.read(0.1), f"it ended without {pattern!r}:\n{self.screen.text}"

    def frame(self, seconds=300):
        """Reads to the end of the next picture, which clears what is below it."""
        end = time.monotonic() + seconds
        while "\x1b[J" not in self.raw:
            assert time.monotonic() < end and self.read(0.1), f"no whole picture comes:\n{self.screen.text}"
        self.raw = self.raw.rpartition("\x1b[J")[2]

    def end(self, seconds=300):
        """The exit status."""
        end = time.monotonic() + seconds
        while self.read(0.1) and time.monotonic() < end:
            pass
        return self.process.wait(300)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


def records(data):
    """(time, offset behind it) of each record of a segment."""
    (base,) = struct.unpack_from("<Q", data, 32)
    at = HEADER
    while at < len(data) and data[at + 1]:
        if data[at] == 1:  # a new time base
            (base,) = struct.unpack_from("<Q", data, at + 8)
        (delta,) = struct.unpack_from("<I", data, at + 4)
        at += 8 * data[at + 1]
        yield base + delta, at


def begin_process(recorded, directory, share=0.6):
    """What the process had written after a part of its time: the rest of its files is allocated and zero."""
    directory.mkdir(parents=True)
    files = {file.name: bytearray(file.read_bytes()) for file in recorded.glob("*.slog")}
    times = [time for data in files.values() for time, _ in records(data)]
    until = min(times) + share * (max(times) - min(times))
    for name, data in files.items():
        end = max([end for time, end in records(data) if time <= until], default=HEADER)
        data[end:] = bytes(256 * 1024 - end)
        (directory / name).write_bytes(data)


def finish_process(recorded, directory):
    shutil.copytree(recorded, directory, dirs_exist_ok=True)


def processes():
    return sorted(path for path in RUN.iterdir() if path.is_dir())


def contents(directory):
    return {path: path.stat().st_mtime_ns for path in sorted(directory.rglob("*"))}


def test_it_follows_a_job_from_before_its_start_to_its_end(tmp_path):
    run = tmp_path / "run"
    first, second = processes()
    with Watch(run) as watch:
        watch.shows("Waiting for a job that records into")
        begin_process(first, run / first.name)
        watch.shows(r"(?m)^ +0  silent \d+ (min|h) .* \d+\.\d MiB ")
        finish_process(first, run / first.name)
        watch.shows(r"(?m)^ +0  ended")
        assert watch.process.poll() is None  # one rank of two
        begin_process(second, run / second.name)
        watch.shows(r"(?m)^ +1  silent")
        before = contents(run)
        finish_process(second, run / second.name)
        assert watch.end() == 0
        # The last picture stays, on the screen that was there before, and the cursor is back.
        assert watch.screen.other is None and watch.screen.cursor_visible
        assert "The job has ended" in watch.screen.text
        peak = json.loads((RUN / "truth.rank0").read_text().splitlines()[1])["allocated_peak"]
        assert len(re.findall(rf"(?m)^ +[01]  ended +4 .*{peak / 2**20:.1f} MiB .*step 1, backward", watch.screen.text)) == 2
        assert set(contents(run)) == set(before) | {path for path in contents(run) if path.name == "sealed.slogz"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(tmp_path, number):
    begin_process(processes()[0], tmp_path / "run" / "p")
    with Watch(tmp_path / "run", "--interval", "3600") as watch:
        watch.shows("Alive on rank 0")
        watch.process.send_signal(number)
        assert watch.end() == 0
        assert watch.screen.other is None and watch.screen.cursor_visible
        assert "Alive on rank 0" in watch.screen.text


def test_it_fits_a_terminal_that_becomes_narrow(tmp_path):
    begin_process(processes()[0], tmp_path / "run" / "p")
    with Watch(tmp_path / "run", "--interval", "3600") as watch:
        watch.frame()
        assert watch.screen.widest <= 100
        watch.resize(33, 7)
        watch.process.send_signal(signal.SIGWINCH)
        watch.frame()
        assert 0 < watch.screen.widest <= 33
        assert len(watch.screen.lines) <= 7


def test_colour_goes_with_no_color(tmp_path):
    finish_process(processes()[0], tmp_path / "run" / "p")
    with Watch(tmp_path / "run", "--once") as coloured, Watch(tmp_path / "run", "--once", NO_COLOR="1") as plain:
        assert coloured.end() == plain.end() == 0
        assert re.search(r"\x1b\[\d+m", coloured.raw)
        assert "\x1b" not in plain.raw


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_knows_no_escape_sequences_gets_none(tmp_path, term):
    for process in processes():
        finish_process(process, tmp_path / process.name)
    with Watch(tmp_path, TERM=term) as watch:
        assert watch.end() == 0
        assert "\x1b" not in watch.raw
        assert "The job has ended" in watch.raw


def test_it_prints_blocks_where_there_is_no_terminal(tmp_path):
    for process in processes():
        finish_process(process, tmp_path / process.name)
    done = subprocess.run([COMMAND, "watch", tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "\x1b" not in done.stdout
    assert done.stdout.count("Alive on rank 0") == 1
    assert done.stdout.endswith(f"The job has ended; 'shardledger peaks {tmp_path}' tells the rest.\n")


LIVE_JOB = """
import sys, threading, time
import shardledger
from shardledger._companion import native
from shardledger.kinds import KIND
ALLOC, FREE, COMPLETED, SEGMENT = 1, 2, 3, 4  # enum sl_allocator_action
native.load()
lock, blocks, end = threading.Lock(), 64, time.monotonic() + 900
native.allocator_event(SEGMENT, 0, 1 << 32, blocks << 20, 0, 0, 0)

def allocate(first):
    live = []
    while time.monotonic() < end:
        native.push(KIND["user"], b"work", 0)
        for number in range(first, first + blocks // 2):
            with lock:  # as the allocator's own
                native.allocator_event(ALLOC, 0, (1 << 32) + (number << 20), 1 << 20, 0, 0, 0)
        for number in range(first, first + blocks // 2):
            with lock:
                native.allocator_event(FREE, 0, (1 << 32) + (number << 20), 1 << 20, 0, 0, 0)
                native.allocator_event(COMPLETED, 0, (1 << 32) + (number << 20), 1 << 20, 0, 0, 0)
        native.pop()
        time.sleep(0.005)  # no burst that the plugin's helper could not keep up with on a busy machine

threads = [threading.Thread(target=allocate, args=(n * blocks // 2,), daemon=True) for n in range(2)]
for thread in threads:
    thread.start()
threads[0].join()
"""


def once(run):
    done = subprocess.run([COMMAND, "watch", run, "--once", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["ranks"][0]


def test_a_process_is_followed_while_it_writes_and_when_it_is_killed(tmp_path):
    run = tmp_path / "run"
    plugin = pathlib.Path(BUILD).resolve() / "lib" / "libshardledger.so"
    environment = dict(os.environ, NVTX_INJECTION64_PATH=str(plugin), SHARDLEDGER_DIR=str(run), RANK="0", WORLD_SIZE="1",
                       PYTHONPATH=str(plugin.parent / "python"), SHARDLEDGER_PYTHON="off")
    job = subprocess.Popen([sys.executable, "-c", LIVE_JOB], env=environment)
    watch = subprocess.Popen([COMMAND, "watch", run], stdout=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 300
        while subprocess.run([COMMAND, "watch", run, "--once"], capture_output=True).returncode:
            assert time.monotonic() < end and job.poll() is None
            time.sleep(0.05)
        events, lost, started = [], [], time.monotonic()
        while len(events) < 4 or time.monotonic() < started + 3:
            rank = once(run)
            assert rank["status"] in ("starting", "running")
            assert (rank["allocated_bytes"] or 0) <= 64 << 20
            events.append(rank["events"])
            lost.append(rank["events_lost"])
        assert events[0] < events[-1]
        job.kill()
        job.wait()
        time.sleep(1.5)
    finally:
        job.kill()
        watch.send_signal(signal.SIGINT)
        text = watch.communicate(timeout=120)[0]
    (ledger,) = query(run, "SELECT events_lost, (SELECT count(*) FROM gap) AS gaps, (SELECT coalesce(sum(bytes), 0) FROM"
                           " allocation WHERE free_ns IS NULL) AS bytes FROM rank")
    final = once(run)
    assert (final["allocated_bytes"], final["events_lost"]) == (ledger["bytes"], ledger["events_lost"])
    assert max(lost) <= ledger["events_lost"]  # a look at a log that is being written takes nothing for lost
    assert text.count("Status") >= 2
    if ledger["gaps"] == 0:
        assert text.count("0 events lost, 0 gaps;") == text.count("Status")


def query(run, sql):
    done = subprocess.run([COMMAND, "query", sql, run, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_scripts_get_the_ledgers_figures(tmp_path):
    for process in processes():
        finish_process(process, tmp_path / process.name)
    before = contents(tmp_path)
    done = subprocess.run([COMMAND, "watch", tmp_path, "--once", "--json"], capture_output=True, text=True, check=True)
    assert contents(tmp_path) == before
    live = json.loads(done.stdout)
    peaks = query(tmp_path, "SELECT rank, max(peak_allocated_bytes) AS allocated, max(peak_reserved_bytes) AS reserved,"
                            " max(peak_device_bytes) AS device, count(*) AS steps FROM step GROUP BY rank ORDER BY rank")
    assert [(r["rank"], r["peak_allocated_bytes"], r["peak_reserved_bytes"], r["peak_device_bytes"], r["steps_ended"])
            for r in live["ranks"]] == [tuple(row.values()) for row in peaks]
    alive = query(tmp_path, "SELECT rank, category, sum(bytes) AS bytes FROM allocation WHERE free_ns IS NULL"
                            " GROUP BY rank, category")
    now = {(c["rank"], c["category"]): c["bytes"] for c in live["categories"] if c["bytes"]}
    assert now == {(row["rank"], row["category"]): row["bytes"] for row in alive}


@pytest.mark.parametrize("arguments, says", [
    (["nowhere", "--once"], "nowhere: no such directory; record a run with 'shardledger run -o nowhere -- CMD'"),
    ([".", "--once"], "nothing was recorded here"),
    (["--csv"], "--csv needs --once; --json prints a line each look"),
    (["--interval", "0"], "--interval takes 1 to 3600 seconds"),
])
def test_what_can_not_be_watched_is_said(tmp_path, arguments, says):
    done = subprocess.run([COMMAND, "watch", *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 2 and done.stdout == ""
    assert says in done.stderr and done.stderr.count("\n") == 1
