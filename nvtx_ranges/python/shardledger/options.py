"""The environment variables that the companion reads; the plugin's table (--help-env) documents all of them."""

import os


def _word(name, default, words):
    value = os.environ.get(name, "").strip().lower()
    return value if value in words else default


def torch_source():
    """auto: the bridge, else the history; bridge, history, off: only that."""
    return _word("SHARDLEDGER_TORCH", "auto", ("auto", "bridge", "history", "off"))


def module_selection():
    """"fsdp", "all", or a depth: which modules get ranges of their own."""
    value = os.environ.get("SHARDLEDGER_MODULES", "").strip().lower()
    if value == "all":
        return "all"
    return int(value) if value.isdigit() else "fsdp"


def verbosity():
    return _word("SHARDLEDGER_LOG", "", ("quiet", "info", "debug"))
