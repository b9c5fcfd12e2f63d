"""Which memory is idle at a step's peak: the ledger against what PyTorch's own history and a TorchDispatchMode tell (idle_job.py).

    python idle_compare.py RUN TRUTH        RUN: a run directory with the log

The ledger's step 1 is compared with the steps under the truth, which do the same. Prints a line a check, and exits 1 when one fails.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from compare import ledger_of  # noqa: E402

STEP = 1
JOB = Path(__file__).resolve().parent / "idle_job.py"


def recorded(db):
    """[(state, bytes asked for, (file's name, line))] of the step's peak."""
    return [(state, size, (os.path.basename(file or ""), line)) for state, size, file, line in db.execute(
        "SELECT i.state, a.requested_bytes, l.file, l.line FROM idle_at_peak i JOIN allocation a ON a.id = i.allocation_id"
        " LEFT JOIN site_line l ON l.site_id = i.site_id WHERE i.step = ?", (STEP,))]


def told(truth):
    """The same of the truth; a line of None is one that PyTorch's history has no frame for."""
    return [(kind, size, tuple(line) if line else None) for kind, size, line, _ in truth["idle"]]


def difference(wanted, found, with_state=True):
    """What is in one and not in the other, each as often as it is; a truth without a line fits any."""
    found = Counter(row if with_state else ("", *row[1:]) for row in found)
    missing = []
    for row in sorted(wanted, key=lambda row: row[2] is None):
        state, size, line = row if with_state else ("", *row[1:])
        fits = next((other for other in found if other[:2] == (state, size) and line in (None, other[2])), None)
        if fits is None:
            missing.append(row)
        else:
            found[fits] -= 1
            found += Counter()
    return missing, sorted(found.elements(), key=str)


def line_of(text):
    return next(number for number, line in enumerate(JOB.read_text().splitlines(), 1) if line.strip().startswith(text))


def check_again(db, truth):
    size, text = truth["again"]
    lines = db.execute("SELECT l.file, l.line FROM allocation a LEFT JOIN site_line l ON l.site_id = a.site_id WHERE a.requested_bytes = ?",
                       (size,)).fetchall()
    wanted = [("tests/gpu/code/idle_job.py", line_of(text + " ="))]
    return "again", lines == wanted, f"{lines} for {wanted}"


def compare(run, truth_file):
    """[(check, passed, detail)]"""
    truth = json.loads(Path(truth_file).read_text())
    with tempfile.TemporaryDirectory() as scratch:
        db = ledger_of(run, scratch)
        rows, wanted = recorded(db), told(truth)
        sees = db.execute("SELECT w.sees_launches FROM use_window w JOIN period p ON p.kind = 'step' AND p.step = ? AND p.peak_ns >= w.start_ns"
                          " AND p.peak_ns < coalesce(w.end_ns, p.peak_ns + 1)", (STEP,)).fetchone()[0]
        if sees:
            missing, more = difference(wanted, [row for row in rows if row[0] in ("late", "early")])
            idle = "idle", not missing and not more, f"{len(wanted)} of the truth; missing {missing}, more {more}"
        else:
            missing, more = difference(wanted, [row for row in rows if row[0] == "hidden"], with_state=False)
            sure = [row for row in rows if row[0] in ("late", "early")]
            idle = "hidden", not missing and not more and not sure, f"{len(wanted)} of the truth; missing {missing}, more {more}, sure {sure}"
        return [idle, check_again(db, truth)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("truth")
    arguments = parser.parse_args()
    results = compare(arguments.run, arguments.truth)
    for name, passed, detail in results:
        print(f"{'pass' if passed else 'FAIL'}  {name:10} {detail}")
    sys.exit(0 if all(passed for _, passed, _ in results) else 1)


if __name__ == "__main__":
    main()
