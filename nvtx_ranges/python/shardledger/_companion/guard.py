"""The companion's switch, and what happens when its own code fails: it goes off, says so once, and training goes on."""

import functools
import os
import sys
import traceback

from . import native, options

if "on" not in globals():  # a reloaded module keeps its state
    on = False  # every hook asks this first
    _at_disable = []
    _said = set()


def at_disable(function):
    """Calls function when the companion goes off after a failure."""
    _at_disable.append(function)
    return function


def say(text):
    """One line on stderr, once per text, from the first rank of a node only; not with SHARDLEDGER_LOG=quiet."""
    if text in _said or options.verbosity() == "quiet" or os.environ.get("LOCAL_RANK", "0") != "0":
        return
    _said.add(text)
    try:
        sys.stderr.write("shardledger: " + text + "\n")
    except Exception:  # a closed stderr is the user's choice
        pass


def say_once(what, text):
    """One line for all that is alike: a job may have many bad modules, each with an error of its own."""
    if what not in _said:
        _said.add(what)
        say(text)


def describe(error):
    """In one line, also of an error that can't say what it is."""
    try:
        return " ".join(f"{type(error).__name__}: {error}".split())
    except Exception:
        return type(error).__name__


def disable(error):
    """Takes the companion out of the job for good. Never raises."""
    global on
    if not on:
        return
    on = False
    reason = describe(error)
    _quietly(native.source_state, b"companion", b"failed", reason.encode("utf-8", "replace"))
    for function in _at_disable:
        _quietly(function)
    _quietly(say, f"the companion failed and is off, training goes on ({reason})")
    if options.verbosity() == "debug":
        _quietly(traceback.print_exception, type(error), error, error.__traceback__)


def _quietly(function, *arguments):
    try:
        function(*arguments)
    except Exception:  # nothing is left to do that could not fail as well
        pass


def guarded(function):
    """Makes a hook that does nothing when the companion is off, and turns it off instead of raising."""

    @functools.wraps(function)
    def hook(*args, **kwargs):
        if on:
            try:
                function(*args, **kwargs)
            except Exception as error:
                disable(error)

    return hook
