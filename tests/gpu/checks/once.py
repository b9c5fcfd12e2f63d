"""What several processes of one run of tests need is made by the first of them; the others wait for it, or find it made.

TESTS_SHARE names the directory that they share: tests/python/conftest.py makes it for pytest and its workers, and removes it at the
end, so nothing is older than the run of tests. Without it everybody makes what it needs.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from pathlib import Path

PLACE = "TESTS_SHARE"


@contextlib.contextmanager
def _locked(path):
    with open(f"{path}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def answer(key, make):
    """What make() returned, as JSON gives it back."""
    place = os.environ.get(PLACE)
    if not place:
        return json.loads(json.dumps(make()))
    path = Path(place) / hashlib.sha256(key.encode()).hexdigest()
    with _locked(path):
        if not path.exists():
            found = json.dumps(make())
            path.with_suffix(".new").write_text(found)
            path.with_suffix(".new").rename(path)
        return json.loads(path.read_text())


def directory(name, make):
    """A directory that make(directory) filled. Nobody changes what is in it."""
    path = Path(os.environ[PLACE]) / name

    def fill():
        shutil.rmtree(path, ignore_errors=True)  # of one who failed in the middle
        path.mkdir(parents=True)
        make(path)

    answer(f"directory {name}", fill)
    return path
