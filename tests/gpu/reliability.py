"""What only GPUs can show of docs/reliability.md: CUDA errors, NCCL aborts, ends with work in flight, GPU memory taken.

    python tests/gpu/reliability.py [--out DIR] [--budget SECONDS] [--only CASE]…

Two GPUs, less than three minutes; one line a check, PASS, FAIL or SKIP. Each job (reliability_job.py) runs with the
plugin and, where they are compared, without: exit statuses are to be the same, and the end not a second later.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from checks.harness import BUILD, MIB, PLUGIN, SHARDLEDGER, clean_environment, stop  # noqa: E402
from checks.report import line, machine  # noqa: E402

JOB = Path(__file__).resolve().parent / "reliability_job.py"
EXIT_SECONDS = 1.0  # what the plugin may add to a process's end
OWN_GPU_BYTES = 64 * MIB  # and take of the GPU's memory
GROWTH_BYTES = 32 * MIB  # and take more while graphs are replayed

# Cases that compare a job with the plugin and without; the first two lists end by themselves, in the way named.
ENDS = (
    "sys_exit", "os_exit", "error", "sigterm", "sigkill", "abort", "segfault", "threads_at_work", "gpu_work_in_flight", "sticky_error",
)  # fmt: skip
GO_ON = ("fork", "worker_processes", "data_loader", "daemon", "programs", "thread_churn")
ABRUPT = ("os_exit", "sigterm", "sigkill", "abort", "segfault")
EITHER = ("threads_at_work", "gpu_work_in_flight", "sticky_error")  # whether such a process ends in order is up to PyTorch


class Done:
    """A job that has ended."""

    def __init__(self, status, ended, place):
        self.status, self.ended, self.place = status, ended, place
        self.directory = place / "run"
        mark = place / "mark"
        self.seen = json.loads(mark.read_text()) if mark.exists() else {}
        self.exit_seconds = ended - self.seen["at"] if self.seen else None
        self.log = (place / "log").read_text(errors="replace") if (place / "log").exists() else ""

    def last_words(self):
        lines = self.log.strip().splitlines()
        return lines[-1][:120] if lines else "it said nothing"


class Jobs:
    def __init__(self, work, device, out):
        self.work, self.device, self.out = work, device, out
        self.count, self.running, self.ended = 0, set(), False

    def end(self, *_):
        """On SIGTERM: no check starts any more, and the jobs that run, in sessions of their own, are ended too."""
        self.ended = True
        for process in tuple(self.running):
            process.terminate()

    def place(self, name):
        self.count += 1
        place = self.work / f"{self.count:02d}-{name}"
        place.mkdir()
        return place

    def environment(self, place, plugin, gpu, **more):
        env = {**clean_environment(), **more}
        if plugin:
            env.update(CUDA_INJECTION64_PATH=str(PLUGIN), NVTX_INJECTION64_PATH=str(PLUGIN))
            env["SHARDLEDGER_DIR"] = str(place / "run")
        if gpu is not None:
            env["CUDA_VISIBLE_DEVICES"] = str(gpu)
        if self.device == "cpu":
            env["PYTHONPATH"] = str(BUILD / "lib" / "python")
        return env

    def run(self, case, plugin, gpu=0, timeout=60, before=(), options=(), **more):
        """Runs the job, behind the words `before`; a job that hangs is killed, and has the status "hangs"."""
        if self.ended:
            raise InterruptedError("no job starts any more")
        place = self.place(f"{case}-{'with' if plugin else 'without'}")
        command = [*before, sys.executable, str(JOB), case, "--mark", str(place / "mark"), "--device", self.device, *options]
        with open(place / "log", "w") as log:
            process = subprocess.Popen(
                [str(word).replace("PLACE", str(place)) for word in command],
                env=self.environment(place, plugin, gpu, **more), cwd=place, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
            self.running.add(process)
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                status = "hangs"
            ended = time.time()
            stop(process)
            self.running.discard(process)
        return Done(status, ended, place)

    def ledger(self, done):
        """{fact: value} of the job's ledger."""
        made = subprocess.run([SHARDLEDGER, "ingest", done.directory], capture_output=True, text=True, timeout=60)
        if made.returncode:
            raise RuntimeError(made.stderr.strip() or "ingest failed")
        with contextlib.closing(sqlite3.connect(f"file:{done.directory}/ledger.sqlite?mode=ro", uri=True)) as db:
            one = lambda sql: db.execute(sql).fetchone()[0]  # noqa: E731
            return {
                "ranks": one("SELECT count(*) FROM rank"),
                "clean": one("SELECT coalesce(min(clean_exit), 0) FROM rank"),
                "lost": one("SELECT coalesce(sum(events_lost), 0) FROM rank"),
                "steps": one("SELECT count(*) FROM step"),
                "wrong": one("SELECT count(*) FROM step WHERE checked = 0"),
                "sources": dict(db.execute("SELECT source, state || ': ' || coalesce(reason, '') FROM source ORDER BY at_ns")),
                "unattributed": one("SELECT coalesce(sum(bytes), 0) FROM category_at_peak WHERE category = 'unattributed'"),
            }


# ---- checks: each gives (passed, figure) ----


def check_end(jobs, case, gpu):
    without = jobs.run(case, plugin=False, gpu=gpu)
    with_plugin = jobs.run(case, plugin=True, gpu=gpu)
    if not with_plugin.seen or not without.seen:
        return False, f"the job did not get there: {(without if with_plugin.seen else with_plugin).last_words()}"
    ledger = jobs.ledger(with_plugin)
    more = with_plugin.exit_seconds - without.exit_seconds
    clean = 0 if case in ABRUPT else 1
    passed = with_plugin.status == without.status != "hangs" and more <= EXIT_SECONDS
    passed = passed and ledger["steps"] >= 3 and ledger["wrong"] == 0 and (case in EITHER or ledger["clean"] == clean)
    return passed, (
        f"exit status {with_plugin.status} (without {without.status}), {more:+.2f} s at the end, {ledger['steps']} steps, "
        f"{ledger['wrong']} wrong, {ledger['lost']} events lost, ended in order: {'yes' if ledger['clean'] else 'no'}"
    )


def check_go_on(jobs, case, gpu):
    done = jobs.run(case, plugin=True, gpu=gpu, timeout=90)
    if done.status != 0:
        return False, f"exit status {done.status}: {done.last_words()}"
    ledger = jobs.ledger(done)
    processes = sum(path.is_dir() for path in done.directory.iterdir())
    passed = ledger["ranks"] == processes == ledger["clean"] == 1 and ledger["steps"] >= 4 and ledger["wrong"] == 0
    return passed, (
        f"{ledger['steps']} steps, {ledger['wrong']} wrong, {ledger['lost']} events lost, logs of {processes} process, "
        f"{done.exit_seconds:.2f} s for the end"
    )


def check_memory(jobs):
    """Each GPU with and without, at the same time, then the other way round."""
    taken = []
    for swap in (False, True):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            done = [pool.submit(jobs.run, "memory", plugin, int(plugin) ^ int(swap), 120) for plugin in (False, True)]
            without, with_plugin = (future.result() for future in done)
        for job in (without, with_plugin):
            if "used_bytes" not in job.seen:
                return False, f"exit status {job.status}: {job.last_words()}"
        taken.append(with_plugin.seen["used_bytes"] - without.seen["used_bytes"])
    figure = " and ".join(f"{size / MIB:.1f} MiB" for size in taken)
    return max(taken) <= OWN_GPU_BYTES, f"the plugin takes {figure} of a GPU"


def check_graphs(jobs, gpu):
    done = jobs.run("graph_replays", plugin=True, gpu=gpu, timeout=90, SHARDLEDGER_KERNELS="all")
    if done.status != 0:
        return False, f"exit status {done.status}: {done.last_words()}"
    grown = done.seen["grown_bytes"]
    return grown <= GROWTH_BYTES, f"{grown / MIB:.1f} MiB more after {done.seen['kernels']} kernels of replayed graphs, all recorded"


def check_nccl_abort(jobs, hard):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    options = ["--hard"] if hard else []
    with_plugin = jobs.run("nccl_abort", True, None, 90, before=torchrun, options=options)
    without = jobs.run("nccl_abort", False, None, 90, before=torchrun, options=options)
    ledger = jobs.ledger(with_plugin)
    more = with_plugin.exit_seconds - without.exit_seconds if with_plugin.seen and without.seen else float("inf")
    passed = with_plugin.status == without.status != "hangs" and more <= 2 * EXIT_SECONDS
    passed = passed and ledger["ranks"] == 2 and ledger["wrong"] == 0
    return passed, (
        f"torchrun's exit status {with_plugin.status} (without {without.status}), {more:+.2f} s, {ledger['ranks']} ranks, "
        f"{ledger['steps']} steps, {ledger['wrong']} wrong"
    )


def check_without_cupti(jobs, gpu):
    done = jobs.run("programs", plugin=True, gpu=gpu, SHARDLEDGER_CUPTI="off")
    ledger = jobs.ledger(done)
    passed = done.status == 0 and ledger["steps"] >= 4 and ledger["wrong"] == 0 and ledger["unattributed"] == 0
    state = ledger["sources"].get("cupti_callback", "not reported")
    figure = f"{ledger['steps']} steps, {ledger['wrong']} wrong, {ledger['unattributed']} B unattributed at the peaks"
    return passed, f"{figure}; cupti_callback {state}"


def check_run_status(jobs, gpu):
    """`shardledger run` gives the job's own end back, and shows what was recorded."""
    place_of = [str(SHARDLEDGER), "run", "-o", "PLACE/run", "--"]
    killed = jobs.run("segfault", False, gpu, before=place_of)
    left = jobs.run("sys_exit", False, gpu, before=place_of)
    passed = killed.status == 139 and left.status == 3 and "Peak" in killed.log
    return passed, f"a segmentation fault gives {killed.status}, sys.exit(3) {left.status}"


TOOLS = {
    "compute-sanitizer": ["compute-sanitizer", "--target-processes", "application-only"],
    "nsys": ["nsys", "profile", "--trace", "cuda,nvtx", "--force-overwrite", "true", "-o", "PLACE/report"],
    "ncu": ["ncu", "--launch-count", "2", "--launch-skip", "20", "-o", "PLACE/report", "-f"],
}


def find_tool(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")


def check_tool(jobs, tool, gpu):
    """`shardledger run` and the tool around a job: the job ends well, its steps are recorded and right.

    nsys gives what it starts variables of its own, so it stands outside (docs/limits.md).
    """
    path = find_tool(tool)
    if not path:
        return None, f"{tool} is not on this machine"
    alone = jobs.run("memory", False, gpu, 90, before=[path, *TOOLS[tool][1:]])
    if alone.status != 0:
        shutil.copy(alone.place / "log", jobs.out / f"reliability-{tool}-alone.log")
        return None, f"{tool} does not work here without the plugin either: exit status {alone.status}, {alone.last_words()}"
    attached, around = [str(SHARDLEDGER), "run", "-o", "PLACE/run", "--"], [path, *TOOLS[tool][1:]]
    before = [*around, *attached] if tool == "nsys" else [*attached, *around]
    done = jobs.run("memory", False, gpu, 90, before=before)
    if done.status != 0 or not done.seen.get("finished"):
        shutil.copy(done.place / "log", jobs.out / f"reliability-{tool}.log")
        return False, f"exit status {done.status}: {done.last_words()}; see reliability-{tool}.log"
    if not done.directory.exists():
        shutil.copy(done.place / "log", jobs.out / f"reliability-{tool}.log")
        return False, f"nothing was recorded; see reliability-{tool}.log"
    ledger = jobs.ledger(done)
    told = ledger["sources"] if not ledger["steps"] else ("cupti_callback", "nvtx")
    states = ", ".join(f"{source} {ledger['sources'].get(source, 'not reported').strip(': ')}" for source in told)
    figure = f"{ledger['steps']} steps, {ledger['wrong']} wrong, {ledger['unattributed']} B unattributed at the peaks"
    return ledger["steps"] >= 3 and ledger["wrong"] == 0 and ledger["unattributed"] == 0, f"{figure}; {states}"


def main():
    p = argparse.ArgumentParser(description="Checks on two GPUs how ShardLedger behaves when things go wrong.")
    p.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")), help="where reliability.txt goes ($OUT)")
    p.add_argument("--budget", type=float, default=165, help="start nothing after so many seconds")
    p.add_argument("--only", action="append", help="run only this check")
    p.add_argument("--workers", type=int, default=6, help="jobs at once")
    p.add_argument("--device", default="cuda", help="cpu: a trial of this script itself")
    options = p.parse_args()
    begin = time.monotonic()
    passed_all, lines = True, []

    def say(name, outcome):
        nonlocal passed_all
        passed, figure = outcome
        passed_all &= passed is not False
        lines.append(f"{ {True: 'PASS', False: 'FAIL', None: 'SKIP'}[passed] }  {name:<22}  {line(figure)}")
        print(lines[-1], flush=True)
        # Each time: who ends this early keeps what there was.
        (options.out / "reliability.txt").write_text("\n".join([on, *sorted(lines)]) + "\n")

    def guarded(check, *arguments):
        if jobs.ended or time.monotonic() - begin > options.budget:
            return None, "no time left"
        try:
            outcome = check(*arguments)
        except Exception as problem:  # noqa: BLE001
            outcome = False, f"{type(problem).__name__}: {problem}"
        return (None, "ended before its end") if jobs.ended else outcome

    options.out.mkdir(parents=True, exist_ok=True)
    on_gpu = options.device == "cuda"
    on = machine()
    print(on, flush=True)
    with tempfile.TemporaryDirectory(prefix="shardledger-reliability-", ignore_cleanup_errors=True) as work:
        jobs = Jobs(Path(work), options.device, options.out)
        signal.signal(signal.SIGTERM, jobs.end)
        checks = []
        # Alone on the GPUs, whose used memory they compare, and first: that also compiles the torch bridge that all others use.
        alone = {"gpu_memory": lambda: check_memory(jobs), "graph_replays": lambda: check_graphs(jobs, 0)} if on_gpu else {}
        checks += [(name, check_end, name) for name in ENDS if on_gpu or name not in EITHER[1:]]
        checks += [(name, check_go_on, name) for name in GO_ON]
        if on_gpu:
            checks += [("nccl_abort", check_nccl_abort, False), ("nccl_abort_os_exit", check_nccl_abort, True)]
            checks += [("run_exit_status", check_run_status), ("without_cupti", check_without_cupti)]
            checks += [(tool, check_tool, tool) for tool in TOOLS]
        unknown = sorted(set(options.only or []) - {*alone, *(check[0] for check in checks)})
        if unknown:
            p.error(f"no check is named {unknown[0]}; there are: {', '.join([*alone, *(check[0] for check in checks)])}")
        checks = [check for check in checks if not options.only or check[0] in options.only]
        for name, check in alone.items():
            if not options.only or name in options.only:
                say(name, guarded(check))
        with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
            futures = {}
            for i, (name, check, *arguments) in enumerate(checks):
                gpu = [] if check is check_nccl_abort else [i % 2]
                futures[pool.submit(guarded, check, jobs, *arguments, *gpu)] = name
            for future in concurrent.futures.as_completed(futures):
                say(futures[future], future.result())
    counts = {word: sum(line.startswith(word) for line in lines) for word in ("PASS", "FAIL", "SKIP")}
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped, in {time.monotonic() - begin:.0f} s")
    return 0 if passed_all else 1


if __name__ == "__main__":
    sys.exit(main())
