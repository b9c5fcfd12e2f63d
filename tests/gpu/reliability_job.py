"""A small training that ends, forks or fails in a chosen way in the middle of a step.

    python reliability_job.py CASE[,CASE]… --mark FILE [--device cuda|cpu]

tests/gpu/reliability.py runs it on GPUs, tests/python/survival_test.py without: there the job itself calls the plugin's
InitializeInjection, as the CUDA driver would. --mark gets a JSON object with what was seen, and the time of the end.
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

SLOW_SECONDS = 2  # of GPU work in flight when the process ends


class Job:
    def __init__(self, options):
        import torch

        self.torch, self.options, self.device = torch, options, options.device
        if self.device == "cpu" and "CUDA_INJECTION64_PATH" in os.environ:
            ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
        if self.device == "cuda":
            torch.cuda.nvtx.mark("begin")  # where CUDA can't bring the plugin in, under Nsight Compute, this does
        self.seen = {}
        torch.manual_seed(1)
        layers = [torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)]
        self.model = torch.nn.Sequential(*layers).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self, in_the_middle=None):
        self.optimizer.zero_grad()
        loss = self.model(self.torch.randn(64, 256, device=self.device)).square().mean()
        loss.backward()
        if in_the_middle:
            in_the_middle(self)
        self.optimizer.step()

    def mark(self, **seen):
        """Writes what was seen so far, and that the process is about to end."""
        self.seen.update(seen)
        with open(self.options.mark + ".new", "w") as file:
            json.dump({**self.seen, "pid": os.getpid(), "at": time.time()}, file)
        os.replace(self.options.mark + ".new", self.options.mark)

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()


# ---- ends ----


def sys_exit(job):
    job.mark()
    sys.exit(3)


def os_exit(job):
    job.mark()
    os._exit(3)


def error(job):
    job.mark()
    raise RuntimeError("the job's own mistake")


def end_by(number):
    def end(job):
        job.mark()
        os.kill(os.getpid(), number)
        time.sleep(30)

    return end


def abort(job):
    job.mark()
    os.abort()


def segfault(job):
    job.mark()
    ctypes.string_at(0)


def threads_at_work(job):
    """Interpreter teardown while threads compute and open ranges."""

    def work():
        while True:
            with job.torch.profiler.record_function("work"):
                job.torch.randn(64, 64, device=job.device).square().sum()

    for _ in range(8):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.2)
    job.mark()
    sys.exit(3)


def execv(job):
    job.mark()
    os.execv(sys.executable, [sys.executable, "-c", "raise SystemExit(3)"])


def gpu_work_in_flight(job):
    job.torch.cuda._sleep(SLOW_SECONDS * 1_500_000_000)
    job.mark()
    sys.exit(3)


def sticky_error(job):
    """An index out of range on the device: from then on every CUDA call of the process fails."""
    values = job.torch.ones(4, device="cuda")
    try:
        values[job.torch.tensor([1000], device="cuda")].sum().item()
    except Exception as problem:  # noqa: BLE001
        job.mark(error=type(problem).__name__)
    for _ in range(3):
        try:
            job.torch.zeros(16, device="cuda")
            job.torch.cuda.synchronize()
        except Exception:  # noqa: BLE001
            job.mark(later_calls_fail=True)
    sys.exit(3)


# ---- children, after which the training goes on ----


def reap(pid):
    """The child's exit status; a child that hangs is an error."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    raise RuntimeError(f"the child {pid} hangs")


def fork(job):
    for orderly in (False, True) * 3:
        pid = os.fork()
        if pid == 0:
            job.torch.ones(8) + 1
            if not orderly:
                os._exit(5)
            import atexit

            atexit._run_exitfuncs()
            ctypes.CDLL(None).exit(5)  # with the destructors and exit functions of every library
        assert reap(pid) == 5


def double(number):
    return 2 * number


def worker_processes(job):
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=double, args=(1,))
        process.start()
        process.join(40)
        assert process.exitcode == 0, (method, process.exitcode)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(double, range(10)).get(20) == [2 * i for i in range(10)]


def data_loader(job):
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(job.torch.randn(64, 256))
    for method in ("fork", "spawn"):
        loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context=method, timeout=40)
        assert sum(len(batch[0]) for batch in loader) == 64


def daemon(job):
    """A grandchild in a session of its own, which outlives its parent."""
    path = job.options.mark + ".daemon"
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.1)
            open(path, "w").close()
            os._exit(0)
        os._exit(0)
    assert reap(pid) == 0
    deadline = time.monotonic() + 20
    while not os.path.exists(path):
        assert time.monotonic() < deadline, "the daemon did not get to its end"
        time.sleep(0.01)


def programs(job):
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", "print(42)"], capture_output=True, text=True, timeout=40)
        assert done.stdout == "42\n", done
    assert os.system("exit 7") >> 8 == 7


def thread_churn(job):
    def work():
        with job.torch.profiler.record_function("work"):
            job.torch.ones(64, device=job.device)

    for _ in range(25):
        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()


# ---- GPU memory, and NCCL ----


def used_bytes(job):
    job.wait()
    free, total = job.torch.cuda.mem_get_info()
    return total - free


def memory(job):
    """What the device holds, allocator's cache included; the process has the GPU to itself."""
    for _ in range(3):
        job.step()
    job.seen["used_bytes"] = used_bytes(job)


def graph_replays(job):
    """Whether CUPTI's buffers grow while a graph of many kernels is replayed."""
    torch = job.torch
    x = torch.ones(1 << 16, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x.mul_(1.0)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(50):
            x.mul_(1.0)
    graph.replay()
    before = used_bytes(job)
    most = before
    for _ in range(20):
        for _ in range(200):
            graph.replay()
        most = max(most, used_bytes(job))
    job.seen.update(grown_bytes=most - before, kernels=20 * 200 * 50)


def nccl_abort(job):
    """Rank 0 waits in a collective that rank 1 never joins, and gives up."""
    import torch.distributed as dist

    dist.init_process_group("nccl", device_id=job.torch.device("cuda", job.torch.cuda.current_device()))
    value = job.torch.ones(1 << 20, device="cuda")
    dist.all_reduce(value)
    job.wait()
    if dist.get_rank() == 0:
        dist.all_reduce(value)
    time.sleep(2)
    from torch.distributed import distributed_c10d

    distributed_c10d._abort_process_group()
    job.mark(aborted=True)
    os._exit(3) if job.options.hard else sys.exit(3)


CASES = {
    "sys_exit": sys_exit,
    "os_exit": os_exit,
    "error": error,
    "sigterm": end_by(signal.SIGTERM),
    "sigkill": end_by(signal.SIGKILL),
    "abort": abort,
    "segfault": segfault,
    "threads_at_work": threads_at_work,
    "execv": execv,
    "gpu_work_in_flight": gpu_work_in_flight,
    "sticky_error": sticky_error,
    "fork": fork,
    "worker_processes": worker_processes,
    "data_loader": data_loader,
    "daemon": daemon,
    "programs": programs,
    "thread_churn": thread_churn,
    "memory": memory,
    "graph_replays": graph_replays,
    "nccl_abort": nccl_abort,
}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("cases", help="one that ends the process comes last; " + ", ".join(CASES))
    p.add_argument("--mark", required=True)
    p.add_argument("--device", default="cuda")
    p.add_argument("--hard", action="store_true", help="nccl_abort: leave by os._exit")
    options = p.parse_args()
    if os.environ.get("LOCAL_RANK") and options.device == "cuda":
        import torch

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    job = Job(options)
    job.step()
    job.step()
    for case in options.cases.split(","):
        job.step(CASES[case])
    job.step()
    job.wait()
    job.mark(finished=True)


if __name__ == "__main__":
    main()
