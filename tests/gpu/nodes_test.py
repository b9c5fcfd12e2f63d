"""One job recorded as two nodes whose clocks are 60 s apart (nodes.py), against what is known of it."""

import shutil

import nodes
from checks.harness import ROOT


def test_two_nodes_are_one_job_with_one_clock_and_its_late_rank(tmp_path):
    shutil.copytree(ROOT / "tests" / "data" / "nodes", tmp_path / "nodes")
    assert not nodes.check(tmp_path / "nodes")
