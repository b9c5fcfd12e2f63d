"""Runs ../prediction/job.py under limits with the largest batch that 'shardledger advise' says to fit, and with those beside it.

    python tests/gpu/advice/batches.py FILE [--jobs N]

What is said comes from recordings in tests/data/predictions with batches of 4 and 8 (../checks/batches.py). FILE gets a JSON line a
job: its kind, the limit, the batch, how it ended, and the rows that it printed. Nothing is recorded meanwhile.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from checks import batches  # noqa: E402

JOB = Path(__file__).resolve().parents[1] / "prediction" / "job.py"
OPTIONS = {"one": (), "ranks4": ("--world", "4")}
LIMITS = tuple(mebibytes << 20 for mebibytes in (1000, 1300, 1700, 2300, 3100, 4500, 7000))
BESIDE = (-1, 0, 1, 2)


def run(kind, limit, said, batch):
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    job = [sys.executable, JOB, *OPTIONS[kind], "--batch", str(batch / 4), "--limit", str(limit)]
    done = subprocess.run([str(word) for word in job], capture_output=True, text=True, env=environment)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    end = "out of memory" if any("out_of_memory" in row for row in rows) else "survived" if done.returncode == 0 else "failed"
    return {"kind": kind, "limit": limit, "said": said, "batch": batch, "end": end, "rows": rows}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--jobs", type=int, default=4)
    options = parser.parse_args()
    wanted = []
    with tempfile.TemporaryDirectory() as scratch:
        for kind in batches.KINDS:
            for limit in LIMITS:
                said = batches.largest(batches.Told(kind, 4, 8), limit, Path(scratch))
                wanted += [(kind, limit, said, said + more) for more in BESIDE if said + more > 0]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, options.file.open("w") as out:
        for found in pool.map(lambda one: run(*one), wanted):
            print(found["kind"], found["limit"] >> 20, "said", found["said"], "batch", found["batch"], found["end"], flush=True)
            out.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
