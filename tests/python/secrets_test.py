"""What a program was told in its arguments and its environment stays there: neither is in its log."""

import os
import subprocess
import sys

from conftest import PLUGIN

PROGRAM = """
import ctypes, os
plugin = ctypes.CDLL(os.environ["NVTX_INJECTION64_PATH"])
plugin.InitializeInjection()
plugin.sl_tag(0, ctypes.c_uint64(4096), b"param", 1, b"weight")
"""


def test_neither_arguments_nor_environment_are_recorded(tmp_path):
    env = dict(os.environ, NVTX_INJECTION64_PATH=PLUGIN, SHARDLEDGER_DIR=str(tmp_path / "log"), SHARDLEDGER_PYTHON="off",
               WANDB_API_KEY="secret-of-the-environment", SLURM_JOB_ID="4711", SLURM_JOB_COMMENT="secret-of-slurm",
               TORCHELASTIC_RUN_ID="nightly", TORCHELASTIC_ERROR_FILE="secret-of-torchrun")  # fmt: skip
    subprocess.run([sys.executable, "-c", PROGRAM, "--token=secret-of-the-arguments"], env=env, check=True, timeout=300)
    files = [path for path in (tmp_path / "log").rglob("*") if path.is_file()]
    content = b"".join(path.read_bytes() for path in files)
    assert b"weight" in content and b"4711" in content and b"secret-of" not in content
