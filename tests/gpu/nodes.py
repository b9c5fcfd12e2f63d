"""One job recorded as two nodes of one GPU each, whose ledgers are merged: clocks, the straggler and the rows, against the truth.

    python nodes.py [--out DIR] [--keep DIR]

Each node is a torchrun of its own, with a host name (a UTS namespace, so this needs root), a GPU, a run directory, and a clock:
the second one's CLOCK_REALTIME is 60 s ahead, by a library loaded before libc. NCCL_HOSTID makes NCCL take them for two hosts,
which meet over sockets. The job is the reference workload. The second node's rank sleeps 40 ms before every third step, and
writes how long it really slept. Printed and held to account:
  - host_clock: the offset that the ledger found, against 60 s, and its own bound of the error
  - who was late: the first collective of each step that began with a sleep, against the sleep
  - merge of both directories against ingest of one directory with the logs of both: every row of every table
Exits 1 where one does not hold. --keep copies the logs and the truth there.
"""

import argparse
import json
import os
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

from checks.harness import SHARDLEDGER

AHEAD_S = 60
SLEEP_S = 0.040
STEPS = 31
TOLERANCE_MS = 5  # of a lateness: what the two ranks differ by without any sleep
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(clock, now);
  if (!status && clock == CLOCK_REALTIME) now->tv_sec += AHEAD_S;
  return status;
}
"""


def job(truth):
    import torch
    from training import Training

    training, slept = Training(), []
    for step in range(STEPS):
        torch.cuda.synchronize()
        torch.distributed.barrier()
        if training.rank == 1 and step and step % 3 == 0:
            begin = time.perf_counter()
            time.sleep(SLEEP_S)
            slept.append([step, time.perf_counter() - begin])
        training.step()
    if training.rank == 1:
        Path(truth).write_text(json.dumps(slept))
    training.close()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(node, port, work):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(node), "NCCL_HOSTID": f"node-{node}", "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
    if node == 1:
        environment["LD_PRELOAD"] = str(work / "clock.so")
    command = [SHARDLEDGER, "run", "-o", work / f"node{node}", "--", sys.executable, "-m", "torch.distributed.run", "--nnodes", 2,
               "--node-rank", node, "--nproc-per-node", 1, "--master-addr", "127.0.0.1", "--master-port", port, __file__, "--job", work / "slept.json"]
    named = f"echo gpu-node-0{node} > /proc/sys/kernel/hostname && exec \"$@\""
    return subprocess.Popen(["unshare", "--uts", "sh", "-c", named, "sh", *map(str, command)], env=environment,
                            stdout=(work / f"node{node}.log").open("w"), stderr=subprocess.STDOUT)


def ledger_of(*arguments):
    subprocess.run([SHARDLEDGER, *map(str, arguments)], check=True, capture_output=True)


def rows(path):
    """{table: its rows}, without what names the files themselves."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables if name not in ("meta", "source")}


def check(work):
    merged, together = work / "merged.sqlite", work / "together"
    together.mkdir()
    for node in (0, 1):
        for path in (work / f"node{node}").iterdir():
            if path.is_dir():
                shutil.copytree(path, together / path.name)
    ledger_of("merge", work / "node0", work / "node1", "-o", merged)
    ledger_of("ingest", together)
    here, there = rows(merged), rows(together / "ledger.sqlite")
    unequal = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    failed = bool(unequal)
    print(f"merge: {sum(map(len, here.values()))} rows of {len(here)} tables, unequal: {', '.join(unequal) or 'none'}")

    slept = dict(json.loads((work / "slept.json").read_text()))
    with sqlite3.connect(merged) as db:
        hosts = db.execute("SELECT host, offset_ns, error_ns, collectives, hops FROM host_clock ORDER BY host").fetchall()
        names = {host for host, *_ in hosts}
        off = [(offset - node * AHEAD_S * 10**9) / 1e3 for node, (_, offset, *_) in enumerate(hosts)]
        bound = hosts[-1][2] / 1e3
        failed |= names != {"gpu-node-00", "gpu-node-01"} or abs(off[-1]) > bound
        print(f"clocks: {', '.join(sorted(names))}; {AHEAD_S} s found with {off[-1]:.1f} us of error, bound {bound:.1f} us, {hosts[-1][3]} collectives")
        first = db.execute("""SELECT step, late_ns / 1e6 FROM collective_cost c WHERE rank = 1 AND step IS NOT NULL AND late_ns IS NOT NULL
                              AND seq = (SELECT min(seq) FROM collective d WHERE d.rank = 1 AND d.step = c.step AND d.comm = c.comm)""").fetchall()
        late = dict(first)
        differences = [late[step] - 1e3 * seconds for step, seconds in slept.items() if step in late]
        others = [ms for step, ms in first if step not in slept and step > 1]
        worst = max(map(abs, differences), default=0.0)
        failed |= not differences or worst > TOLERANCE_MS
        print(f"late: {len(differences)} of {len(slept)} slept steps timed; lateness of the first collective less the sleep: "
              f"median {statistics.median(differences or [0]):+.2f} ms, at most {worst:.2f} ms; {len(others)} other steps: "
              f"median {statistics.median(others or [0]):.2f} ms late")
        print(f"stragglers: {db.execute('SELECT rank, collectives, last, max_late_ns, others_waited_ns FROM straggler').fetchall()}")
    print(subprocess.run([SHARDLEDGER, "nccl", merged], capture_output=True, text=True).stdout)
    return failed


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "nodes")
    p.add_argument("--keep", type=Path)
    p.add_argument("--job", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.job:
        return job(a.job)
    work = a.out.resolve()
    work.mkdir(parents=True)
    (work / "clock.c").write_text(CLOCK.replace("AHEAD_S", str(AHEAD_S)))
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", work / "clock.so", work / "clock.c", "-ldl"], check=True)
    port = free_port()
    nodes = [start(node, port, work) for node in (0, 1)]
    try:
        statuses = [node.wait(180) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    if any(statuses):
        print(f"the nodes exited {statuses}:\n" + "\n".join((work / f"node{node}.log").read_text()[-2000:] for node in (0, 1)))
        return 1
    if a.keep:
        for node in (0, 1):
            shutil.copytree(work / f"node{node}", a.keep / f"node{node}", ignore=shutil.ignore_patterns("ledger.sqlite*"))
        shutil.copy(work / "slept.json", a.keep)
    return check(work)


if __name__ == "__main__":
    sys.exit(main())
