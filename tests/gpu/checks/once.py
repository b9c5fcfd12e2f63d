"""What several processes of one run of tests need is made by the first of them; the others wait for it, or find it made.

TESTS_SHARE names the directory that they share: tests/python/conftest.py makes it for pytest and its workers, and removes it at the
end, so nothing is older than the run of tests. Without it everybody makes what it needs.
"""

import contextlib
import fcntl
import hashlib
import json
import os
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


def directory(name, make, otherwise):
    """(a directory, what make(directory) returned when it filled it, as JSON gives it back). otherwise(): an empty one of this process's own."""
    place = os.environ.get(PLACE)
    if not place:
        own = Path(otherwise())
        return own, json.loads(json.dumps(make(own)))
    path = Path(place) / name

    def fill():
        path.mkdir(parents=True)
        return make(path)

    return path, answer(name, fill)
