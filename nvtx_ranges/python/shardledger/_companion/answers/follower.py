"""What the ledger knows of the running process: `shardledger watch` beside it reads its log as it grows, on another processor
and at the lowest priority, and a thread here keeps what it said last.

The log is read once, however often somebody asks, so the cost of a look does not grow with the job.
"""

import atexit
import json
import os
import subprocess
import threading

from .. import guard, native
from ..layout import find_command

INTERVAL = 2  # seconds between two looks

if "_once" not in globals():  # a reloaded module goes on
    _once = threading.Lock()  # held from the first question on
    _process = None  # `shardledger watch`
    _latest = None  # its last look


def latest():
    """The last look, at most INTERVAL and the time of reading old; None: none yet, or there can't be any. Waits for nothing."""
    if not _once.locked() and own_directory() and _once.acquire(blocking=False):
        threading.Thread(target=_follow, name="shardledger metrics", daemon=True).start()
    return _latest


def read():
    """A look at what was recorded until now. Reads this process's log from its beginning, and waits for it."""
    command, directory = _command(), own_directory()
    if command is None or not directory:
        return None
    done = subprocess.run([command, "watch", directory, "--once", "--json"], stdin=subprocess.DEVNULL, env=environment(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    if done.returncode != 0:
        _say(done.stderr)
        return None
    return json.loads(done.stdout)


def own_directory():
    """Of this process's log; "": nothing was recorded yet."""
    return os.fsdecode(native.directory() or b"")


def environment():
    """For a command beside the job: it is not a part of it."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith("SHARDLEDGER_") and not name.endswith("_INJECTION64_PATH")}


def _command():
    command = find_command()
    if command is None:
        _say("the command shardledger is not installed beside this package, and not on PATH")
    return command


def _say(why):
    guard.say_once("metrics", "metrics() has PyTorch's figures only: " + " ".join(why.replace("shardledger: ", "").split()))


def _follow():
    """Until the job or the command ends. Where this process is killed, the command's next line finds nobody, which ends it."""
    global _process, _latest
    command = _command()
    if command is None:
        return
    try:
        _process = subprocess.Popen([command, "watch", own_directory(), "--json", "--interval", str(INTERVAL)],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
                                    encoding="utf-8", errors="replace")
    except OSError as error:
        _say(str(error))
        return
    atexit.register(_end, _process, os.getpid())
    for line in _process.stdout:
        if line.endswith("\n"):  # else it was ended in the middle of it
            _latest = json.loads(line)
    said = _process.stderr.read()
    if _process.wait() > 0:  # less than 0: a signal, as at the end of the job
        _say(said or f"shardledger watch ended with {_process.returncode}")


def _end(process, owner):
    if os.getpid() == owner:  # and no process that was forked from it
        process.terminate()
