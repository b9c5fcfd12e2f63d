"""What the command says of itself to shells and to man: completion that completes, a page that renders."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest
from conftest import BUILD

COMMAND = os.path.abspath(os.path.join(BUILD, "bin", "shardledger"))
SHARE = os.path.join(BUILD, "share")

pytestmark = pytest.mark.skipif(not os.path.exists(COMMAND), reason=f"{COMMAND} is not built")

# A line up to the cursor, and what has to be among its completions or must not be.
CASES = [
    ("shardledger pea", ["peaks"], ["run"]),
    ("shardledger ", ["run", "peaks", "help"], ["--by"]),
    ("shardledger peaks --b", ["--by", "--bytes"], ["--step"]),
    ("shardledger peaks --by ", ["module", "category", "step", "rank"], ["peaks"]),
    ("shardledger peaks --by m", ["module"], ["category"]),
    ("shardledger run --kernels n", ["nccl", "none"], ["all"]),
    ("shardledger export --format ", ["nsys", "kineto"], []),
    ("shardledger help sur", ["survivors"], ["run"]),
    ("shardledger completion ", ["bash", "zsh", "fish"], []),
    ("shardledger info re", ["recorded", "recorded.sqlite"], []),  # see `place`
    ("shardledger run -o re", ["recorded"], ["recorded.sqlite"]),  # directories only
    ("shardledger run -- cm", ["cmake"], ["check"]),
]


def shardledger(*arguments):
    return subprocess.run([COMMAND, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recorded").mkdir()
    (tmp_path / "recorded.sqlite").touch()
    return tmp_path


def environment():
    return dict(os.environ, PATH=f"{os.path.dirname(COMMAND)}:{os.environ['PATH']}", TERM="dumb", LC_ALL="C.UTF-8")


def commands():
    return re.findall(r"^  (\w+)  ", shardledger("help"), re.M)


def options(command):
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", shardledger(command, "--help"), re.M)


def installed(*path):
    return os.path.join(SHARE, *path)


BASH = """
source {script}
COMP_LINE=$1 COMP_POINT=${{#1}}
read -ra COMP_WORDS <<<"${{1//=/ = }}"
[[ $1 == *[\\ =] ]] && COMP_WORDS+=('')
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
compopt() {{ :; }} # only the shell's own completion may call it
_shardledger
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def bash(line):
    script = BASH.format(script=installed("bash-completion", "completions", "shardledger"))
    done = subprocess.run(["bash", "--norc", "-c", script, "bash", line], env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize("line, there, absent", [case for case in CASES if "info re" not in case[0]])
def test_bash_completes(line, there, absent, place):
    found = bash(line)
    assert [word for word in there if word not in found] == []
    assert [word for word in absent if word in found] == []


def test_bash_completes_values_behind_an_equals_sign(place):
    assert bash("shardledger peaks --by=m") == ["module"]
    assert "module" in bash("shardledger peaks --by=")


def test_bash_leaves_runs_and_files_to_its_own_completion_of_names(place):
    assert bash("shardledger info re") == []
    assert "-o default" in subprocess.run(["bash", "-c", f"source {installed('bash-completion/completions/shardledger')};"
                                           "complete -p shardledger"], capture_output=True, text=True).stdout


def test_bash_knows_every_option_of_every_command():
    for command in commands():
        assert sorted(bash(f"shardledger {command} --")) == sorted(options(command)), command


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize("line, there, absent", CASES)
def test_fish_completes(line, there, absent, place):
    script = f"source {installed('fish', 'vendor_completions.d', 'shardledger.fish')}; complete -C '{line}'"
    done = subprocess.run(["fish", "--no-config", "-c", script], env=dict(environment(), HOME=str(place)),
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    found = [line.split("\t")[0].rstrip("/") for line in done.stdout.splitlines()]
    assert [word for word in there if word not in found] == []
    assert [word for word in absent if word in found] == []


class Zsh:
    """An interactive zsh on a terminal of its own."""

    def __init__(self, home):
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], dict(environment(), HOME=str(home), PS1="", COLUMNS="200"))
        self.send(f"fpath=({installed('zsh', 'site-functions')} $fpath); autoload -U compinit; compinit -D -u;"
                  "LISTMAX=1000; unsetopt automenu listambiguous; print rea''dy\n")
        self.read(["ready"])

    def send(self, text):
        os.write(self.terminal, text.encode())

    def read(self, words, seconds=120):
        """What comes until all words have, or time is up."""
        text, end = "", time.monotonic() + seconds
        while time.monotonic() < end and not all(word in text for word in words):
            if select.select([self.terminal], [], [], 0.5)[0]:
                text += os.read(self.terminal, 65536).decode("utf-8", "replace")
        return text

    def complete(self, line, words):
        """Types a line and Tab; what is shown, at the latest when these words are."""
        self.send(line + "\t")
        shown = self.read(words)
        self.send("\x15print clea''red\n")
        self.read(["cleared"])
        return shown

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.child, 0)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(place):
    zsh = Zsh(place)
    try:
        for line, words in [("shardledger peak", ["shardledger peaks "]), ("shardledger s", ["survivors", "snapshots"]),
                            ("shardledger peaks --b", ["--by", "--bytes"]),
                            ("shardledger peaks --by ", ["module", "category", "step", "rank"]),
                            ("shardledger info rec", ["recorded/", "recorded.sqlite"])]:
            shown = zsh.complete(line, words)
            assert [word for word in words if word not in shown] == [], shown
    finally:
        zsh.close()


def test_the_manual_names_every_command_and_option_and_variable():
    with open(installed("man", "man1", "shardledger.1")) as file:
        page = file.read().replace("\\-", "-")
    for command in commands():
        section = page.split(f"\n.SS shardledger {command} ")[1].split("\n.S")[0]
        missing = [option for option in options(command) if option != "--help" and f"\\fB{option}\\fR" not in section]
        assert missing == [], command
    for variable in re.findall(r"^(SHARDLEDGER_\w+)$", shardledger("run", "--help-env"), re.M):
        assert f"\n.B {variable}\n" in page


@pytest.mark.parametrize("command", [("groff", "-ww", "-man", "-Kutf8", "-Tutf8", "-z"), ("mandoc", "-Tlint", "-Wwarning")],
                         ids=["groff", "mandoc"])
def test_the_manual_renders_without_warnings(command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([*command, installed("man", "man1", "shardledger.1")], capture_output=True, text=True)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "missing date" not in line]
    assert said == []  # it has no date, so that the same sources give the same page


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_man_shows_it():
    done = subprocess.run(["man", "-l", installed("man", "man1", "shardledger.1")], capture_output=True, text=True,
                          env=dict(environment(), MANWIDTH="100", MANPAGER="cat"))
    assert done.returncode == 0
    assert "shardledger peaks [DIR|FILE] [--by" in " ".join(done.stdout.split())
    assert "CMD…" in done.stdout
