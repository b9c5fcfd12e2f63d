"""The environment options that the companion needs. The C libraries read the environment, by the table in plugin/process/config.h."""

from . import native


def _value(name):
    """Empty where neither library is in the process: then nothing is recorded."""
    ask = native.options_without_plugin if native.plugin is None else native.option
    return (ask(name) or b"").decode("utf-8", "replace")


def torch_source():
    """auto: the bridge, else the history; bridge, history, off: only that."""
    return _value(b"SHARDLEDGER_TORCH")


def stacks():
    """auto, all, none or A:B: the steps in which call stacks are taken."""
    return _value(b"SHARDLEDGER_STACKS") or "none"


def module_selection():
    """"fsdp", "all", or a depth: which modules get ranges of their own."""
    value = _value(b"SHARDLEDGER_MODULES")
    return int(value) if value.isdigit() else value


def verbosity():
    return _value(b"SHARDLEDGER_LOG")
