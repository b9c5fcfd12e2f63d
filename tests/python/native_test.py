"""One list of the C functions and one parser of options: what Python has of both comes from the C libraries."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import LIBRARIES, PLUGIN

from shardledger import kinds
from shardledger._companion import signatures

OPTIONS = """
import json
from shardledger._companion import native, options
native.load()
print(json.dumps([native.plugin is not None, options.torch_source(), options.module_selection(), options.verbosity()]))
"""


def asked(plugin, tmp_path, **environment):
    """What a process's companion takes from the environment, and what is said about it."""
    environment = dict(os.environ, PYTHONPATH=os.path.join(LIBRARIES, "python"), SHARDLEDGER_DIR=str(tmp_path), **environment)
    if plugin:
        environment["NVTX_INJECTION64_PATH"] = PLUGIN
    done = subprocess.run([sys.executable, "-c", OPTIONS], env=environment, capture_output=True, text=True, check=True)
    found, *values = json.loads(done.stdout)
    assert found == plugin
    return values, done.stderr


@pytest.mark.parametrize("plugin", [True, False], ids=["plugin", "no-plugin"])
def test_an_option_is_read_by_the_parser_in_c_alone(plugin, tmp_path):
    assert asked(plugin, tmp_path) == (["auto", "fsdp", "info"], "")
    assert asked(plugin, tmp_path, SHARDLEDGER_MODULES="all", SHARDLEDGER_TORCH="history")[0] == ["history", "all", "info"]
    assert asked(plugin, tmp_path, SHARDLEDGER_MODULES="3", SHARDLEDGER_LOG="quiet")[0] == ["auto", 3, "quiet"]
    values, said = asked(plugin, tmp_path, SHARDLEDGER_MODULES="ALL", SHARDLEDGER_TORCH=" off")
    assert values == ["auto", "fsdp", "info"]
    assert [line.split(" is ")[0] for line in said.splitlines()] == ["shardledger: SHARDLEDGER_MODULES=ALL",
                                                                     "shardledger: SHARDLEDGER_TORCH= off"]


@pytest.mark.parametrize("library, header, entries", [
    (PLUGIN, "shardledger.h", r"InitializeInjection\w*|ncclProfiler_v\d+"),
    (os.path.join(LIBRARIES, "libshardledger_nvtx.so"), "ranges.h", "(?!)"),
])
def test_a_library_exports_what_its_header_declares(library, header, entries):
    names = subprocess.run(["nm", "-D", "--defined-only", "--format=just-symbols", library], capture_output=True, text=True,
                           check=True).stdout.split()
    assert sorted(name for name in names if not re.fullmatch(entries, name)) == sorted(
        name for name, *_ in signatures.signatures(header))


def test_every_declaration_of_a_header_is_read():
    for file, macro in (("shardledger.h", "SL"), ("ranges.h", "SLR"), ("torch_bridge.cpp", "SLB")):
        marked = re.findall(rf"^{macro}_API(?:_WAITS)? ", kinds.read(file), re.MULTILINE)
        assert len(marked) == len(signatures.signatures(file)) > 5
