"""The report of the run that goes on, for the tracker that keeps it."""

import contextlib
import os
import sqlite3
import subprocess
import tempfile

from .. import guard
from ..layout import find_command
from . import figures, follower


def attach_to_wandb(run):
    """Makes the report of what was recorded until now, and hands it to a run of Weights & Biases. Waits for it: seconds, or
    minutes for a long run of many ranks. Returns whether it did; what fails is said, and training goes on."""
    directory, command = follower.own_directory(), find_command()
    if not figures.is_recorded() or not directory or command is None:
        return False
    try:
        import wandb

        with tempfile.TemporaryDirectory(prefix="shardledger-") as scratch:
            page = _make(command, directory, scratch)
            artifact = wandb.Artifact(f"shardledger-{run.id}", type="memory-report")
            artifact.add_file(page)
            run.log_artifact(artifact)  # copies the file before it returns
        return True
    except Exception as error:
        guard.say_once("artifact", f"the report is not attached ({guard.describe(error)})")
        return False


def _make(command, directory, scratch):
    """Of the whole run where its ranks share a directory and it is the newest one there, else of this process. The ledger is
    made elsewhere: that of the run's directory waits until the run has ended."""
    ledger, page = os.path.join(scratch, "ledger.sqlite"), os.path.join(scratch, "shardledger.html")
    _run(command, "ingest", os.path.dirname(directory), "-o", ledger)
    if not _has_this_process(ledger):
        _run(command, "ingest", directory, "-o", ledger)
    _run(command, "report", ledger, "-o", page)
    return page


def _has_this_process(ledger):
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        return bool(connection.execute("SELECT count(*) FROM rank WHERE pid = ? AND host = ?",
                                       (os.getpid(), os.uname().nodename)).fetchone()[0])


def _run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8",
                          errors="replace", env=follower.environment())
    if done.returncode != 0:
        raise OSError(" ".join(done.stderr.replace("shardledger: ", "").split()))
