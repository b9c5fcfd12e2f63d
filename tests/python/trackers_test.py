"""shardledger.MemTracker and FSDPMemTracker: against PyTorch's, against sums over the whole ledger, and where PyTorch's take over."""

import contextlib
import json
import os
import pathlib
import sqlite3
import subprocess
import sys

import pytest
from conftest import BUILD, LIBRARIES, PLUGIN

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
COMMAND = pathlib.Path(BUILD).resolve() / "bin" / "shardledger"

pytestmark = pytest.mark.skipif(not COMMAND.exists() or not os.path.exists(PLUGIN), reason="not built")


# ---- a recorded job ----


@pytest.fixture(scope="module")
def jobs(start_job):
    """{job: what job_trackers.py printed}; two processes beside each other."""
    names = ["plain", "recompute", "many steps"], ["fsdp-mixed", "fsdp-recompute-in-place", "fsdp-unit-alone"]
    waiting = [start_job("job_trackers.py", *some, ranks=1, SHARDLEDGER_MODULES="all") for some in names]
    lines = [json.loads(line) for wait in waiting for line in wait().check().output[0].out.splitlines()]
    return {line["job"]: line for line in lines}


@pytest.mark.parametrize("job, tracker", [
    ("plain", "MemTracker"), ("recompute", "MemTracker"), ("fsdp-mixed", "FSDPMemTracker"),
    ("fsdp-recompute-in-place", "FSDPMemTracker"), ("fsdp-unit-alone", "FSDPMemTracker")])
def test_totals_are_the_allocators_and_owners_are_pytorchs(jobs, job, tracker):
    line = jobs[job]
    assert line["answered"] == f"shardledger.trackers.{tracker}"
    assert line["failed"] == []
    assert line["counts"]["exact"] >= 6 and line["counts"]["owner"] == 20 and line["counts"]["tracker"] > 20
    assert line["warned"] == []


@pytest.mark.parametrize("job", ["fsdp-mixed", "fsdp-recompute-in-place"])
def test_a_units_backward_ends_where_pytorchs_does(jobs, job):
    """With the gradients of the inputs: what FSDP casts of them has one of its own."""
    ours, theirs = jobs[job]["backward"]
    assert len(theirs) == 3 and ours == theirs


def test_any_number_of_steps_is_one_scope(jobs):
    line = jobs["many steps"]
    assert line["repeated"] > 10  # whose rows are others'
    assert line["calls"] == [30 + 2] * 6  # of each state that the model reaches; the steps between two scopes are not its own
    assert line["peak"] == line["allocated_peak"]


def test_inputs_outputs_and_parameters_of_a_module_are_pytorchs(jobs):
    ours, theirs = jobs["plain"]["members"]
    assert len(ours) == 13 and ours == theirs


# ---- any stretch of a recorded run ----


def ingest(run, path, *options):
    subprocess.run([COMMAND, "ingest", run, "-o", path, *options], check=True, capture_output=True)
    return path


def marked(path, **marks):
    with contextlib.closing(sqlite3.connect(path)) as ledger, ledger:
        (rank,) = ledger.execute("SELECT rank FROM rank").fetchone()
        ledger.executemany("INSERT INTO mark(rank, tid, at_ns, name, period) VALUES(?, 0, ?, ?, 0)",
                           [(rank, at_ns, name) for name, at_ns in marks.items()])


class Truth:
    """The same by going through all allocations of a ledger that leaves none out."""

    def __init__(self, path, begin, end, owned):
        with contextlib.closing(sqlite3.connect(path)) as ledger:
            # What was there before recording has no number; it was made at some time before.
            rows = ledger.execute("SELECT iif(alloc_event IS NULL, 0, alloc_ns), coalesce(free_ns, 1 << 62), bytes, category FROM allocation "
                                  "WHERE device = (SELECT device FROM rank)").fetchall()
            self.word = dict(ledger.execute("SELECT name, fsdp_word FROM category"))
        self.rows = [row for row in rows if row[0] > begin or row[3] in owned]
        self.begin, self.end = begin, end

    def at(self, instant):
        words = {}
        for made, gone, size, category in self.rows:
            if made <= instant < gone:
                words[self.word[category]] = words.get(self.word[category], 0) + size
        return words

    def peak(self):
        """The total; events with a time of their own each."""
        changes = sorted([(made, size) for made, _, size, _ in self.rows] + [(gone, -size) for _, gone, size, _ in self.rows])
        total, highest = 0, 0
        for place, (instant, change) in enumerate(changes):
            total += change
            if self.begin <= instant <= self.end:
                highest = max(highest, total)
            elif instant < self.begin and (place + 1 == len(changes) or changes[place + 1][0] > self.begin):
                highest = total
        return highest


def instants(path):
    """Of periods whose rows are all there: (period, begin, end)."""
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        return ledger.execute("SELECT period, start_ns, end_ns FROM period WHERE same_as IS NULL ORDER BY period").fetchall()


@pytest.mark.parametrize("run", ["fsdp2-2rank-long", "fsdp2-2rank-recompute", "life/leak-varied", "matrix/late-attach"])
def test_any_stretch_has_the_sums_of_the_whole_ledger(run, tmp_path):
    from shardledger._companion.answers import tracker_answers

    process = next(path for path in sorted((DATA / run).iterdir()) if path.is_dir() and any(path.glob("*.slog*")))
    short, whole = ingest(process, tmp_path / "short"), ingest(process, tmp_path / "whole", "--keep", "all")
    kept = instants(short)
    last = kept[-1][2]
    begins = [start + (end - start) * (number + 1) // 7 for number, (_, start, end) in enumerate(kept[:6])]
    marked(short, **{f"begin {number}": begin for number, begin in enumerate(begins)}, end=last)
    for number, begin in enumerate(begins):
        scope = tracker_answers.Scope(f"begin {number}", None)
        answers = tracker_answers.Answers(tracker_answers.connect(short), "fsdp_word", [scope], "end")
        truth = Truth(whole, begin, last, tracker_answers.OWNED)
        assert answers.current() == truth.at(last)
        peak = answers.peak()
        assert sum(peak.values()) == truth.peak(), number


def test_a_run_that_repeats_itself_is_among_them(tmp_path):
    process = next(path for path in sorted((DATA / "fsdp2-2rank-long").iterdir()) if path.is_dir())
    with contextlib.closing(sqlite3.connect(ingest(process, tmp_path / "short"))) as ledger:
        assert ledger.execute("SELECT count(*) FROM period WHERE same_as IS NOT NULL").fetchone()[0] > 50


@pytest.mark.parametrize("run", ["fsdp2-2rank", "fsdp2-2rank-mixed-precision", "fsdp2-2rank-recompute"])
def test_owners_at_recorded_states_are_those_of_pytorchs_tracker(run, tmp_path):
    """To the byte, once what blocks have more than the requests that PyTorch's counts is taken away."""
    from shardledger._companion.answers import tracker_answers

    for path in sorted((DATA / run).glob("truth.tracker.rank*")):
        rank = int(path.name.removeprefix("truth.tracker.rank"))
        for process in (entry for entry in (DATA / run).iterdir() if entry.is_dir()):
            ledger_path = ingest(process, tmp_path / process.name)
            with contextlib.closing(sqlite3.connect(ledger_path)) as ledger:
                if ledger.execute("SELECT rank FROM rank").fetchone() != (rank,):
                    continue
                (begin,), = ledger.execute("SELECT max(start_ns) FROM step").fetchall()
                (end,) = ledger.execute("SELECT end_ns FROM rank").fetchone()
                more = dict(ledger.execute("SELECT fsdp_word, sum(bytes - (requested_bytes + 511) / 512 * 512) FROM allocation a "
                                           "JOIN category c ON c.name = a.category WHERE free_ns IS NULL GROUP BY fsdp_word"))
                names = {number & ((1 << 40) - 1): fqn for number, fqn in ledger.execute("SELECT id, fqn FROM module")}
            marked(ledger_path, begin=begin, end=end)
            answers = tracker_answers.Answers(tracker_answers.connect(ledger_path), "fsdp_word", [tracker_answers.Scope("begin", None)],
                                              "end")
            told = {(names[module], state, call): words for (module, state), snapshots in answers.module_states("begin").items()
                    for call, words in enumerate(snapshots)}
            compared = 0
            for row in json.loads(path.read_text()):
                if row["category"] in ("Sharded Param", "Buffer", "OptState"):
                    key, theirs = (row["fqn"].partition(".")[2], row["state"], row["call"]), row["bytes"]
                    assert told[key].get(row["category"], 0) - more[row["category"]] == theirs, (key, row["category"])
                    compared += 1
            assert compared > 100


# ---- where PyTorch's take over ----


@pytest.fixture
def unsaid(monkeypatch):
    from shardledger._companion import guard

    monkeypatch.setattr(guard, "_said", set())
    monkeypatch.setenv("LOCAL_RANK", "0")


def mlp():
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def one_step(tracker, model, optimizer, batch):
    tracker.track_external(model, optimizer, batch)
    with tracker:
        model(batch).sum().backward()
        optimizer.step()
    return tracker


def figures(tracker):
    return (tracker.get_tracker_snapshot("current"), tracker.get_tracker_snapshot("peak"),
            {stats.mod_fqn: stats.snapshots for stats in tracker.memory_tracking.values()})


def test_what_is_not_recorded_is_handed_over_and_said_once(unsaid, capsys):
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker as Torchs

    import shardledger

    batch = torch.ones(8, 64)
    ours = one_step(shardledger.MemTracker(), *(same := mlp()), batch)
    assert isinstance(ours.handed_over_to, Torchs)
    theirs = one_step(Torchs(), *(other := mlp()), batch)
    assert figures(ours) == figures(theirs)
    assert figures(ours)[0] and figures(ours)[2]
    one_step(shardledger.MemTracker(), *mlp(), batch)
    ours.display_snapshot("peak", units="KiB")
    said = capsys.readouterr()
    assert said.err.count("PyTorch's memory tracker answers in MemTracker's place") == 1
    assert "this process is not recorded" in said.err
    theirs.display_snapshot("peak", units="KiB")
    assert said.out == capsys.readouterr().out
    ours.reset_mod_stats()
    assert not len(ours.memory_tracking)
    assert ours._mod_tracker is ours.handed_over_to._mod_tracker
    del same, other


def test_under_fake_tensors_pytorchs_answers(unsaid, capsys):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker as Torchs

    import shardledger

    with FakeTensorMode():
        model, optimizer = mlp()
        tracker = shardledger.MemTracker()
        assert isinstance(tracker.handed_over_to, Torchs)
        one_step(tracker, model, optimizer, torch.ones(8, 64))
        assert tracker.get_tracker_snapshot("peak")
    assert "under FakeTensorMode there is no memory" in capsys.readouterr().err


@pytest.fixture
def recorded(companion, monkeypatch):
    """A process that looks as if it were recorded, up to its allocator."""
    import torch
    from shardledger._companion import native
    from shardledger._companion.allocations import bridge
    from shardledger._companion.answers import tracker_base

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(native, "recording", lambda: 1)
    monkeypatch.setattr(bridge, "_allocator", "bridge")
    monkeypatch.setattr(bridge, "tag_workspaces_now", lambda: None)
    monkeypatch.setattr(tracker_base, "find_command", lambda: "shardledger")
    return companion


def test_a_model_on_the_processor_is_pytorchs(recorded, unsaid, monkeypatch, capsys):
    import torch
    from shardledger._companion.tagging import tags

    import shardledger

    monkeypatch.setattr(tags, "DEVICES", {"cuda"})
    tracker = one_step(shardledger.MemTracker(), *mlp(), torch.ones(8, 64))
    assert tracker.handed_over_to is not None
    assert "the model is not on a GPU" in capsys.readouterr().err


def test_what_is_given_is_tagged_before_it_is_called(recorded):
    import shardledger

    model, optimizer = mlp()
    model.register_buffer("running", model[0].bias.detach().clone())
    tracker = shardledger.MemTracker()
    tracker.track_external(model, [optimizer])
    assert not recorded.calls.named("tag")
    with tracker:
        tagged = [(category, module, name) for _, _, _, category, module, name in recorded.calls.named("tag")]
        assert ("param", 0, "0.weight") in tagged and ("buffer", 0, "running") in tagged and len(tagged) == 5
        (entered,) = recorded.calls.named("mark")
    left = recorded.calls.named("mark")[-1]
    # A name that ends in a number would stand for all of its kind (rank_pattern.c), and its period might be left out.
    assert entered[2].endswith(": entered") and left[2].endswith(": left") and entered[2] != left[2].replace("left", "entered")


def test_a_model_that_was_called_is_not_tagged_anew(recorded):
    import torch

    import shardledger

    model, _ = mlp()
    model(torch.ones(8, 64))
    recorded.calls.clear()
    tracker = shardledger.MemTracker()
    tracker.track_external(model)
    with tracker:
        assert not recorded.calls.named("tag")


def test_a_tensor_that_died_before_is_not_tracked(recorded):
    import torch

    import shardledger

    tracker = shardledger.MemTracker()
    tracker.track_external(torch.ones(512))
    kept = torch.ones(512)
    tracker.track_external(kept)
    with tracker:
        assert [named.address for named in tracker._named] == [kept.data_ptr()]


def test_bad_questions_get_one_sentence(recorded, monkeypatch):
    import torch
    from shardledger._companion import native
    from shardledger._companion.answers import tracker_base

    import shardledger

    tracker = shardledger.MemTracker()
    with pytest.raises(TypeError, match="a str can't be tracked: modules, optimizers and tensors can"):
        tracker.track_external("model")
    with pytest.raises(ValueError, match="Invalid type average: it is 'current' or 'peak'"):
        tracker.get_tracker_snapshot("average")
    with pytest.raises(AttributeError, match="no attribute '_mod_tracker'"):
        tracker._mod_tracker
    with pytest.raises(AssertionError, match="takes a model of fully_shard, and this is a Linear"):
        shardledger.FSDPMemTracker(torch.nn.Linear(2, 2))
    monkeypatch.setattr(tracker_base, "find_command", lambda: "/bin/false")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    with tracker:
        with pytest.raises(shardledger.trackers.TrackerError, match="the record could not be read: shardledger ended with 1"):
            tracker.get_tracker_snapshot()
        monkeypatch.setattr(native, "recording", lambda: 0)
        with pytest.raises(RuntimeError, match="recording has ended"):
            tracker.get_tracker_snapshot()
    assert recorded.guard.on


def test_a_program_may_put_them_into_pytorchs_module(monkeypatch):
    from shardledger._companion.answers import tracker_base
    from torch.distributed._tools import mem_tracker

    import shardledger

    torchs = tracker_base._pytorchs("MemTracker")
    monkeypatch.setattr(mem_tracker, "MemTracker", shardledger.MemTracker)
    with mem_tracker.MemTracker() as tracker:
        assert type(tracker.handed_over_to) is torchs
    monkeypatch.setattr(tracker_base, "_found", {})
    with pytest.raises(RuntimeError, match="was replaced before shardledger.MemTracker was imported: import that first"):
        mem_tracker.MemTracker().__enter__()


def test_the_pages_example_runs_anywhere():
    page = (DATA.parents[1] / "docs" / "integrations.md").read_text()
    code = page.partition("This example runs anywhere:\n```py\n")[2].partition("```")[0]
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.path.join(LIBRARIES, "python")})
    assert "Module:  Sequential" in done.stdout and "KiB" in done.stdout
    assert done.stderr.count("PyTorch's memory tracker answers") == 1


def test_they_are_there_without_being_imported():
    script = ("import sys, shardledger; assert 'torch' not in sys.modules and 'shardledger.trackers' not in sys.modules; "
              "from shardledger import FSDPMemTracker, MemTracker; assert 'torch' not in sys.modules; print(MemTracker.__name__)")
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.path.join(LIBRARIES, "python")})
    assert done.stdout == "MemTracker\n"
