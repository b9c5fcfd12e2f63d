"""Which of the bridges that a release brings is for the torch that is imported, and what happens where it does not load."""

import os
import types

import pytest

from shardledger._companion.allocations import built_ahead


@pytest.fixture
def release(tmp_path, monkeypatch):
    """release(torch's version, CUDA's, files) is the torch and the release of a test."""
    monkeypatch.setattr(built_ahead, "_DIRECTORY", str(tmp_path))

    def make(torch, cuda="13.0", debug=False, abi=True, files=("bridge-2.9-abi1.so", "bridge-2.9-abi0.so")):
        monkeypatch.setattr(built_ahead, "torch", types.SimpleNamespace(
            __version__=torch, version=types.SimpleNamespace(cuda=cuda, debug=debug), _C=types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=abi)))
        for name in files:
            (tmp_path / name).write_text(name)

    return make


def found():
    path = built_ahead.find()
    return path and os.path.basename(path)


@pytest.mark.parametrize("torch, more, expected", [
    ("2.9.0", {}, "bridge-2.9-abi1.so"),
    ("2.9.1+cu128", {}, "bridge-2.9-abi1.so"),
    ("2.9.1", {"abi": False}, "bridge-2.9-abi0.so"),
    ("2.90.1", {}, None),
    ("2.10.0", {}, None),
    ("2.9.0a0+git1234567", {}, None),  # a vendor's image
    ("2.9.0.dev20250901+cu129", {}, None),
    ("2.9.1+rocm6.4", {"cuda": None}, None),
    ("2.9.1+cpu", {"cuda": None}, None),
    ("2.9.1", {"debug": True}, None),
])
def test_a_file_is_for_the_releases_of_one_version_and_abi(release, torch, more, expected):
    release(torch, **more)
    assert found() == expected


def test_a_job_takes_what_is_there_and_compiles_nothing(release):
    release("2.9.1")
    library, how = built_ahead.opened(os.path.basename, pytest.fail)
    assert (library, how) == ("bridge-2.9-abi1.so", "built ahead: bridge-2.9-abi1.so")


def test_what_does_not_load_here_is_compiled(release):
    release("2.9.1")

    def load(path):
        if path != "compiled":
            raise OSError("version `GLIBC_2.28' not found")
        return path

    assert built_ahead.opened(load, lambda: "compiled") == ("compiled", "compiled here")


def test_where_a_release_brings_nothing_it_is_compiled(release):
    release("2.9.1", files=())
    assert built_ahead.opened(str, lambda: "compiled") == ("compiled", "compiled here")
