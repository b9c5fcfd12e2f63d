"""What a job writes down of PyTorch's own figures, while it knows nothing of any profiler.

truth.rank<R> has one JSON object a line:
    {"job", "rank", "began"}                         a job began
    {"job", "rank", "step", "start_ns", "end_ns",    a step: torch.cuda.memory_stats, read where its optimizer has stepped;
     "since_ns", "requested_peak", "requested_end",  since_ns: when the peaks were last reset; times are of CLOCK_REALTIME
     …}
    {"job", "rank", "note"|"skipped"|"error": words}
    {"job", "rank", "done"}
truth.tracker.rank<R> has one a job:
    {"job", "rank", "step", "tracker", "snapshots": [[fqn, state, call, {category: bytes}]]}

A step's peak is the highest point from its begin_step on, which a job calls just before the step's first work: what runs
between two steps belongs to neither, as the ledger has it.
"""

import json
import time

import torch

QUANTITIES = ("requested", "allocated", "active", "reserved")


class Truth:
    """The truth files of one rank."""

    def __init__(self, prefix, rank, device):
        self.rank, self.cuda = rank, device == "cuda"
        self._steps = open(f"{prefix}.rank{rank}", "w")
        self._trackers = open(f"{prefix}.tracker.rank{rank}", "w")
        self.job = self.step = self._start_ns = None
        self._since_ns = None

    def begin_job(self, name):
        self.job, self.step, self._start_ns = name, -1, None
        self.say("began", time.time_ns())

    def say(self, key, value):
        self._write(self._steps, {key: value})

    def count_peaks(self):
        """Peaks are those from here on."""
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        self._since_ns = time.time_ns()

    def begin_step(self):
        if self.cuda:
            torch.cuda.synchronize()
        self.step += 1
        self._start_ns = time.time_ns()
        self.count_peaks()

    def end_step(self):
        """Called where the step's last work has been issued, before the job's own variables die: the ledger ends it there."""
        if self._start_ns is None:
            return
        row = {"step": self.step, "since_ns": self._since_ns, "start_ns": self._start_ns, "end_ns": time.time_ns()}
        if self.cuda:
            stats = torch.cuda.memory_stats()
            for quantity in QUANTITIES:
                row[f"{quantity}_peak"] = stats.get(f"{quantity}_bytes.all.peak", 0)
                row[f"{quantity}_end"] = stats.get(f"{quantity}_bytes.all.current", 0)
        self._start_ns = None
        self._write(self._steps, row)

    def tracked(self, name, memory_tracking):
        """The module snapshots of a FSDPMemTracker ("fsdp") or MemTracker ("module"), taken in the step that ended last."""
        snapshots = []
        for stats in memory_tracking.values():
            for state, calls in stats.snapshots.items():
                for call, snapshot in enumerate(calls):
                    for device, totals in snapshot.items():
                        if device.type == "cuda":
                            words = {getattr(category, "value", str(category)): size for category, size in totals.items()}
                            snapshots.append([stats.mod_fqn, state.value, call, words])
        self._write(self._trackers, {"step": self.step, "tracker": name, "snapshots": snapshots})

    def _write(self, file, row):
        file.write(json.dumps({"job": self.job, "rank": self.rank, **row}) + "\n")
        file.flush()
