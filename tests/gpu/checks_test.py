"""The GPU checks can fail: each is given a ledger that is right, then one that is wrong in one place."""

import contextlib
import json
import sqlite3
import sys
import types
from pathlib import Path

import overhead
import pytest
from checks import reliability
from checks.attribution import check_attribution
from checks.balance import check_balance, check_sampling
from checks.bootstrap import interval
from checks.devices import compared_devices, compared_host
from checks.harness import ROOT, Run
from checks.history import check_same
from checks.oom import as_pytorch_says, message_in, read_errors, refused, write_errors
from checks.reference import check_recorded
from checks.robustness import kept_last
from checks.tracker import check_tracker
from checks.truth import QUANTITIES, check_exact, read_truth
from checks.watch import pictured
from peers import Peer

sys.path.insert(0, str(ROOT / "scripts"))
from ledger_schema import empty_tables  # noqa: E402

SIZES = {"requested": 900, "allocated": 1024, "active": 1024, "reserved": 2 << 20}


@pytest.fixture
def ledger():
    """Two ranks, two steps, in the real tables; what the checks read through views is put in plain tables."""
    database = sqlite3.connect(":memory:")
    empty_tables(database)
    database.execute("CREATE TABLE category_at_peak(rank, period, step, category, bytes)")
    database.execute("CREATE TABLE fsdp_snapshot(rank, step, fqn, call, state, category, bytes)")
    columns = [f"{when}_{quantity}_bytes" for when in ("peak", "end") for quantity in QUANTITIES]
    for rank in range(2):
        for step in range(2):
            values = [rank, 2 * step + 1, "step", step, 0, 1, 1, *(SIZES[quantity] for _ in range(2) for quantity in QUANTITIES)]
            database.execute(
                f"INSERT INTO period(rank, period, kind, step, start_ns, end_ns, checked, {', '.join(columns)}) "
                f"VALUES({', '.join('?' * len(values))})",
                values,
            )
            for category, size in (("activation", 1023), ("unattributed", 1)):
                database.execute("INSERT INTO category_at_peak VALUES(?, ?, ?, ?, ?)", (rank, 2 * step + 1, step, category, size))
            for state, size in (("Peak Forward", 64 << 20), ("After Pre-Forward", 32 << 20)):
                for category in ("Activation", "Total"):
                    row = (rank, step, "FSDPTransformer.blocks.0", 0, state, category, size)
                    database.execute("INSERT INTO fsdp_snapshot VALUES(?, ?, ?, ?, ?, ?, ?)", row)
    yield database
    database.close()


@pytest.fixture
def truth(tmp_path):
    for rank in range(2):
        rows = [
            {"rank": rank, "step": step, **{f"{q}_{when}": SIZES[q] for q in QUANTITIES for when in ("peak", "end")}}
            for step in range(2)
        ]
        (tmp_path / f"truth.rank{rank}").write_text("".join(json.dumps(row) + "\n" for row in rows))
        tracked = [
            {"fqn": "FSDPTransformer.blocks.0", "state": state, "call": 0, "category": category, "bytes": size * share}
            for state, size in (("Peak Forward", 64 << 20), ("After Pre-Forward", 32 << 20))
            for category, share in (("Activation", 1), ("Temp", 0), ("Total", 1))
        ]
        (tmp_path / f"truth.tracker.rank{rank}").write_text(json.dumps(tracked))
    return tmp_path / "truth"


def test_an_equal_ledger_is_exact(ledger, truth):
    result = check_exact("run", read_truth(truth), ledger)
    assert result.passed
    assert result.figure == "16 of 16 peaks equal, 16 of 16 ends"


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_one_byte_at_one_peak_fails(ledger, truth, quantity):
    ledger.execute(f"UPDATE period SET peak_{quantity}_bytes = peak_{quantity}_bytes - 1 WHERE rank = 1 AND step = 1")
    result = check_exact("run", read_truth(truth), ledger)
    assert not result.passed
    assert f"rank 1 step 1 {quantity}" in result.figure


def test_a_step_that_the_ledger_lacks_fails(ledger, truth):
    ledger.execute("DELETE FROM period WHERE rank = 0 AND step = 1")
    assert not check_exact("run", read_truth(truth), ledger).passed


def test_no_truth_is_no_success(ledger, tmp_path):
    assert not check_exact("run", read_truth(tmp_path / "truth"), ledger).passed


def test_a_rank_without_truth_fails(ledger, truth):
    Path(f"{truth}.rank1").write_text("")
    result = check_exact("run", read_truth(truth), ledger)
    assert not result.passed
    assert result.figure == "8 of 8 peaks equal, 8 of 8 ends; no truth of rank 1"


def test_an_end_may_differ_by_the_jobs_variables_only(ledger, truth):
    ledger.execute("UPDATE period SET end_allocated_bytes = end_allocated_bytes + 4096")
    assert check_exact("run", read_truth(truth), ledger).passed
    ledger.execute("UPDATE period SET end_allocated_bytes = end_allocated_bytes + (1 << 20)")
    assert not check_exact("run", read_truth(truth), ledger).passed


def test_a_step_whose_replay_disagreed_fails(ledger, truth):
    ledger.execute("UPDATE period SET checked = 0 WHERE step = 0")
    assert not check_exact("run", read_truth(truth), ledger).passed


def test_a_line_that_a_kill_cut_off_is_left_out(truth):
    with open(f"{truth}.rank0", "a") as out:
        out.write('{"rank": 0, "st')
    assert len(read_truth(truth)) == 4


def test_an_attributed_peak_passes(ledger):
    result = check_attribution("run", ledger)
    assert result.passed
    assert "0.098%" in result.figure


def test_more_than_a_thousandth_unattributed_fails(ledger):
    ledger.execute("UPDATE category_at_peak SET bytes = 2 WHERE category = 'unattributed'")
    ledger.execute("UPDATE category_at_peak SET bytes = 1022 WHERE category = 'activation'")
    assert not check_attribution("run", ledger).passed


def test_categories_that_miss_the_peak_fail(ledger):
    ledger.execute("UPDATE category_at_peak SET bytes = 999 WHERE category = 'activation' AND rank = 1 AND step = 0")
    result = check_attribution("run", ledger)
    assert not result.passed
    assert "rank 1 period 1 step 0, 1000 of 1024" in result.figure


def test_what_no_rule_covers_outside_of_steps_fails(ledger):
    ledger.execute("INSERT INTO period(rank, period, kind, start_ns, end_ns, peak_allocated_bytes) VALUES(0, 0, 'setup', 0, 0, 1000)")
    assert not check_attribution("run", ledger).passed
    ledger.execute("INSERT INTO category_at_peak VALUES(0, 0, NULL, 'program', 1000)")
    assert check_attribution("run", ledger).passed
    ledger.execute("UPDATE category_at_peak SET category = 'unattributed' WHERE period = 0")
    assert not check_attribution("run", ledger).passed


def test_a_ledger_without_categories_fails(ledger):
    ledger.execute("DELETE FROM category_at_peak")
    assert not check_attribution("run", ledger).passed


def test_equal_snapshots_agree_with_the_tracker(ledger, truth):
    result = check_tracker("run", truth, ledger)
    assert result.passed
    assert result.figure == "12 of 12 rows within 1% or 1 MiB"


def test_the_tracker_is_compared_with_the_last_step(ledger, truth):
    ledger.execute("UPDATE fsdp_snapshot SET bytes = 0 WHERE step = 0")
    assert check_tracker("run", truth, ledger).passed
    ledger.execute("UPDATE fsdp_snapshot SET bytes = 0 WHERE step = 1")
    assert not check_tracker("run", truth, ledger).passed


def test_one_row_that_is_not_near_fails(ledger, truth):
    query = "UPDATE fsdp_snapshot SET bytes = bytes + (2 << 20) WHERE step = 1 AND rank = 0 AND state = 'Peak Forward'"
    ledger.execute(query + " AND category = 'Activation'")
    result = check_tracker("run", truth, ledger)
    assert not result.passed
    assert "11 of 12 rows" in result.figure


def test_a_missing_module_state_fails(ledger, truth):
    ledger.execute("DELETE FROM fsdp_snapshot WHERE rank = 1 AND state = 'Peak Forward'")
    result = check_tracker("run", truth, ledger)
    assert not result.passed
    assert "1 module states missing" in result.figure


def test_a_rank_without_tracker_fails(ledger, truth):
    Path(f"{truth}.tracker.rank0").unlink()
    result = check_tracker("run", truth, ledger)
    assert not result.passed
    assert "the tracker's rows of rank 0 are missing" in result.figure


def test_every_rank_is_recorded_to_its_end_with_collectives_that_have_times(ledger):
    ledger.executemany("INSERT INTO rank(rank, clean_exit, events_lost) VALUES(?, 1, 0)", [(0,), (1,)])
    for start_ns, passed in ((None, False), (5, True)):
        ledger.execute("DELETE FROM collective")
        for rank, start in ((0, 5), (1, start_ns)):
            columns = "rank, seq, operation, bytes, enqueue_ns, start_ns, end_ns"
            ledger.execute(f"INSERT INTO collective({columns}) VALUES(?, 1, 'AllGather', 8, 4, ?, ?)", (rank, start, start))
        assert check_recorded("run", ledger, 2, 2, 3).passed is passed
    assert not check_recorded("run", ledger, 1, 2, 3).passed
    assert not check_recorded("run", ledger, 2, 4, 3).passed
    for wrong in ("UPDATE rank SET events_lost = 1 WHERE rank = 1", "UPDATE rank SET clean_exit = 0", "DELETE FROM collective"):
        ledger.execute("SAVEPOINT right")
        ledger.execute(wrong)
        assert not check_recorded("run", ledger, 2, 2, 3).passed, wrong
        ledger.execute("ROLLBACK TO right")


def test_the_interval_holds_the_median_and_is_tight_for_equal_values():
    assert interval([0.01] * 20) == (0.01, 0.01)
    low, high = interval([i / 1000 for i in range(40)])
    assert low < 0.0195 < high


class FakeTraining:
    """Steps that take no time, and count who watched them."""

    def __init__(self):
        self.watched, self.steps = None, []

    def step(self):
        self.steps.append(self.watched)


def test_every_tool_is_measured_in_pairs_of_equal_blocks():
    training, resets = FakeTraining(), []

    @contextlib.contextmanager
    def watch(training):
        training.watched = "tool"
        yield lambda: resets.append(1)
        training.watched = None

    blocks = overhead.Blocks(training, synchronize=lambda: None, barrier=lambda: None)
    rounds = iter([True, False])
    pairs = list(blocks.rounds([Peer("a", watch, 3, 0), Peer("b", watch, 3, 0)], lambda: next(rounds)))
    assert sorted(pair["tool"] for pair in pairs) == ["a", "a", "b", "b"]
    assert all(len(pair[key]) == 3 and min(pair[key]) > 0 for pair in pairs for key in ("on_ms", "off_ms"))
    # A block is one step that is not timed and three that are; the tool watches those of its own, and is told of each.
    assert training.steps.count("tool") == training.steps.count(None) == len(resets) == 4 * 4


def test_a_tool_can_have_many_short_pairs_in_a_round():
    training = FakeTraining()

    @contextlib.contextmanager
    def watch(training):
        yield lambda: None

    blocks = overhead.Blocks(training, synchronize=lambda: None, barrier=lambda: None)
    pairs = list(blocks.rounds([Peer("a", watch, 1, 0, untimed=0, pairs=5)], lambda: False))
    assert len(pairs) == 5 and len(training.steps) == 5 * 2


def test_the_table_tells_the_difference_of_pairs_without_outliers():
    slow = [{"tool": "a", "on_ms": [110.0, 900.0, 110.0], "off_ms": [100.0, 100.0, 700.0]}] * 8
    fast = [{"tool": "a", "on_ms": [55.0], "off_ms": [50.0]}] * 8
    odd = [{"tool": "a", "on_ms": [900.0], "off_ms": [50.0]}, {"tool": "a", "on_ms": [50.0], "off_ms": [900.0]}]
    line = overhead.table(slow + fast + odd).splitlines()[1]
    assert line.split()[3:] == ["+10.00%", "+10.00%", "to", "+10.00%", "18"]


def test_pairs_are_read_up_to_where_a_kill_cut_them_off(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"tool": "a"}\n{"tool": "b"}\n{"to')
    assert [pair["tool"] for pair in overhead.read(tmp_path / "pairs.jsonl")] == ["a", "b"]


@pytest.fixture
def refusal(ledger):
    """One request of 64 bytes refused in a forward, while 1024 bytes were allocated."""
    ledger.execute("INSERT INTO phase(id, rank, tid, kind, name, start_ns) VALUES(7, 0, 1, 'forward', 'M', 1)")
    ledger.execute("INSERT INTO phase(id, rank, tid, kind, name, start_ns, parent_id) VALUES(8, 0, 1, 'unshard', 'A', 1, 7)")
    ledger.execute(
        "INSERT INTO oom(rank, at_ns, requested_bytes, allocated_bytes, device, source, phase_id)"
        " VALUES(0, 5, 64, 1024, 0, 'allocator', 8)"
    )
    for size in (1000, 24):
        ledger.execute("INSERT INTO oom_owner(rank, at_ns, category, bytes, allocations) VALUES(0, 5, 'temp', ?, 1)", (size,))
    return ledger


SAID = "0 events lost\n\nOut of memory: rank 0, in step 2\n"


def test_a_refused_request_needs_its_phase_its_owners_and_its_words(refusal):
    assert refused("forward", refusal, 1, "forward", SAID).passed
    assert not refused("forward", refusal, 0, "forward", SAID).passed
    assert not refused("forward", refusal, 1, "backward", SAID).passed
    assert not refused("forward", refusal, 1, "forward", "No request was refused").passed
    refusal.execute("UPDATE oom_owner SET bytes = 25 WHERE bytes = 24")
    assert not refused("forward", refusal, 1, "forward", SAID).passed


MESSAGE = (
    "[rank{}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {} MiB. GPU 0 has a total capacity of 139.80 GiB of which "
    "136.67 GiB is free. Of the allocated memory 1.50 GiB is allocated by PyTorch, and 82.06 MiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting ..."
)


@pytest.mark.parametrize("requested, tried", [(1 << 20, "2.00"), (5 << 20, "20.00"), ((24 << 20) + 512, "26.00")])
def test_a_refused_request_has_the_figures_of_pytorchs_message(ledger, tmp_path, requested, tried):
    job = Run("made", tmp_path / "run", tmp_path / "truth", tmp_path / "log", 1, 1.0)
    job.log.write_text("\n".join(["some line", MESSAGE.format(0, tried), "[rank1]: ValueError: no"]))
    write_errors(job)
    errors = read_errors(job.truth)
    assert list(errors) == [0]
    assert not as_pytorch_says("made", errors, ledger).passed, "the ledger has no refused request"
    free, allocated, reserved = int(136.67 * 2**30), 3 << 29, (3 << 29) + int(82.06 * 2**20)
    columns = "rank, at_ns, requested_bytes, free_bytes, allocated_bytes, reserved_bytes, device, source"
    row = [0, 5, requested, free, allocated, reserved, 0, "allocator"]
    ledger.execute(f"INSERT INTO oom({columns}) VALUES({', '.join('?' * len(row))})", row)
    assert as_pytorch_says("made", errors, ledger).passed
    assert not as_pytorch_says("made", {}, ledger).passed
    for column in ("requested_bytes", "free_bytes", "allocated_bytes", "reserved_bytes"):
        ledger.execute(f"UPDATE oom SET {column} = {column} + 20000000")
        assert not as_pytorch_says("made", errors, ledger).passed, column
        ledger.execute(f"UPDATE oom SET {column} = {column} - 20000000")


@pytest.mark.parametrize(
    "asked, passed",
    [("26.0 MiB asked for by PyTorch's allocator", True), ("24.0 MiB asked for by PyTorch's allocator", False),
     ("24.0 MiB asked for by PyTorch's allocator (its message says 26.0 MiB, the segment for it)", True),
     ("26.0 MiB asked for by libnccl.so.2", False)],
)
def test_the_command_has_to_say_what_pytorchs_message_says(asked, passed):
    text = f"0 events lost\n\nOut of memory: rank 1, in step 2: {asked}\n"
    assert message_in("made", {1: MESSAGE.format(1, "26.00")}, text).passed is passed
    assert not message_in("made", {0: MESSAGE.format(0, "26.00")}, text).passed


@pytest.mark.parametrize("status", [0, 1, 2])
def test_each_check_of_reliability_has_its_row(monkeypatch, tmp_path, status):
    script = tmp_path / "script.py"
    lines = ["2 x GPU", "PASS  fork   4 steps", "FAIL  ncu    exit status 1", "SKIP  nsys   nsys is not on this machine", "1 passed"]
    script.write_text(f"import sys\nprint({chr(10).join(lines)!r}, flush=True)\nsys.exit({status})\n")
    monkeypatch.setattr(reliability, "SCRIPT", script)
    rows = [(r.name, r.passed, r.figure) for r in reliability.check_reliability(types.SimpleNamespace(out=tmp_path))]
    assert rows[:3] == [("reliability: fork", True, "4 steps"), ("reliability: ncu", False, "exit status 1"),
                        ("reliability: nsys", None, "nsys is not on this machine")]
    assert rows[3:] == ([("reliability", False, "script.py exited 2; see reliability.log")] if status == 2 else [])


def test_a_reliability_run_that_is_given_up_leaves_no_process(monkeypatch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import os, time\nprint(f'PASS  pid  {os.getpid()}', flush=True)\ntime.sleep(60)\n")
    monkeypatch.setattr(reliability, "SCRIPT", script)
    results = reliability.check_reliability(types.SimpleNamespace(out=tmp_path))
    pid = int(next(results).figure)
    results.close()
    assert not Path(f"/proc/{pid}").exists()


def watched_job(rank=0, **changed):
    """Two ranks in step 3 of a job whose peak grew in step 1."""
    truth = {(r, step): {"allocated_peak": 900 if step == 0 else 1024} for r in range(2) for step in range(4)}
    rows = [dict(rank=r, status="running", step=3, peak_allocated_bytes=1024, steps_differed=0, events_lost=0) for r in range(2)]
    rows[rank].update(changed)
    text = "0 events lost\n\n" + "".join(f"   {row['rank']}  {row['status']}  {row['step']}\n" for row in rows)
    return {"ranks": rows, "categories": [{}]}, text, truth


def test_a_picture_of_a_running_job_has_every_rank_its_step_and_its_peak():
    told, text, truth = watched_job()
    assert pictured("watch", told, text, truth, 2, ended=3, alive=True).passed
    assert not pictured("watch", told, text, truth, 2, ended=3, alive=False).passed
    assert not pictured("watch", told, text, truth, 3, ended=3, alive=True).passed
    assert not pictured("watch", told, "0 events lost\n", truth, 2, ended=3, alive=True).passed
    for wrong in ({"status": "ended"}, {"step": None}, {"step": 0}, {"peak_allocated_bytes": 900}, {"steps_differed": 1}, {"events_lost": 1}):
        told, text, truth = watched_job(**wrong)
        assert not pictured("watch", told, text, truth, 2, ended=3, alive=True).passed, wrong


def test_a_log_at_its_limit_keeps_the_first_and_the_latest_steps_to_the_byte(ledger, truth):
    told = read_truth(truth)
    for rank in range(2):  # five steps of a job, two of which are left
        told.update({(rank, step): {**told[rank, 0], "step": step} for step in range(5)})
        ledger.execute("UPDATE period SET step = 4 WHERE rank = ? AND step = 1", (rank,))
        ledger.execute("INSERT INTO gap VALUES(?, 5, 'log', 0, 'steps 1 to 3 dropped to make room for the latest')", (rank,))
    ledger.execute("INSERT INTO rank(rank, events_lost) VALUES(0, 0)")
    assert kept_last("keep-last", told, ledger, 6 << 20).passed
    assert not kept_last("keep-last", told, ledger, 8 << 20).passed
    assert not kept_last("keep-last", {}, ledger, 6 << 20).passed
    assert not kept_last("keep-last", {key: row for key, row in told.items() if key[1] in (0, 1)}, ledger, 6 << 20).passed
    for wrong in (
        "UPDATE period SET peak_active_bytes = 1 WHERE rank = 1 AND step = 4",
        "UPDATE period SET step = 2 WHERE rank = 1 AND step = 4",
        "UPDATE period SET step = 1 WHERE rank = 1 AND step = 0",
        "DELETE FROM period WHERE rank = 1",
        "DELETE FROM gap WHERE rank = 1",
        "UPDATE rank SET events_lost = 1",
    ):
        ledger.execute("SAVEPOINT right")
        ledger.execute(wrong)
        assert not kept_last("keep-last", told, ledger, 6 << 20).passed, wrong
        ledger.execute("ROLLBACK TO right")


def test_a_device_balance_that_does_not_add_up_or_explain_fails(ledger):
    assert not check_balance("run", ledger).passed  # without samples nothing is shown
    ledger.execute("INSERT INTO device_sample(rank, device, at_ns, total_bytes, used_bytes, sampled_by) VALUES(0, 0, 5, 9000, 1000, 'driver')")
    for owner, size in (("allocated", 990), ("unexplained", 10)):
        ledger.execute("INSERT INTO device_owner VALUES(0, 0, 5, ?, ?)", (owner, size))
    assert check_balance("run", ledger).passed
    ledger.execute("UPDATE device_owner SET bytes = 11 WHERE owner = 'unexplained'")
    ledger.execute("UPDATE device_sample SET used_bytes = 1001")
    assert not check_balance("run", ledger).passed
    ledger.execute("UPDATE device_owner SET bytes = 9 WHERE owner = 'unexplained'")
    assert not check_balance("run", ledger).passed


def test_nvmls_samples_that_are_missing_or_disagree_fail(ledger):
    assert not check_sampling("run", ledger).passed
    ledger.executemany("INSERT INTO rank(rank) VALUES(?)", [(0,), (1,)])
    sample = "INSERT INTO device_sample(rank, device, at_ns, total_bytes, used_bytes, sampled_by) VALUES(?, 0, ?, 9000, 1000, ?)"
    ledger.executemany(sample, [(0, 5, "nvml"), (1, 5, "driver")])
    assert not check_sampling("run", ledger).passed, "rank 1 has the driver's only"
    ledger.executemany(sample, [(1, at_ns, "nvml") for at_ns in (6, 7)])
    ledger.execute("INSERT INTO device_owner VALUES(1, 0, 6, 'unexplained', 500)")
    assert check_sampling("run", ledger).passed, "one of three falls into a call"
    ledger.execute("INSERT INTO device_owner VALUES(1, 0, 7, 'unexplained', 500)")
    assert not check_sampling("run", ledger).passed


def test_a_category_that_the_history_gives_otherwise_than_the_bridge_fails(ledger):
    with contextlib.closing(sqlite3.connect(":memory:")) as history:
        history.execute("CREATE TABLE category_at_peak(rank, step, category, bytes)")
        rows = ledger.execute("SELECT rank, step, category, bytes FROM category_at_peak").fetchall()
        history.executemany("INSERT INTO category_at_peak VALUES(?, ?, ?, ?)", rows)
        assert check_same("history", ledger, history).passed
        history.execute("UPDATE category_at_peak SET category = 'optstate' WHERE rank = 1 AND step = 1 AND bytes > 1")
        result = check_same("history", ledger, history)
        assert not result.passed and "0.1%" in result.figure, result.figure
        history.execute("DELETE FROM category_at_peak WHERE rank = 1 AND step = 1")
        assert not check_same("history", ledger, history).passed


@pytest.fixture
def two_gpus(ledger):
    """Rank 1 holds 600 bytes on GPU 0 and pinned host memory, besides what each rank has on its own GPU; and its truth."""
    for rank, device, size in ((0, 0, 900), (1, 1, 900), (1, 0, 600)):
        ledger.execute(
            "INSERT INTO allocation(rank, device, address, bytes, requested_bytes, stream, category, tid, alloc_ns, decided_by)"
            " VALUES(?, ?, 4096, ?, ?, 0, 'temp', 1, 5, 'tag')",
            (rank, device, size, size),
        )
        columns = "rank, device, address, bytes, owner, api, alloc_ns"
        ledger.execute(f"INSERT INTO segment({columns}) VALUES(?, ?, 4096, ?, 'pytorch', 'x', 5)", (rank, device, 2 * size))
    for owner, size, free_ns in (("pytorch", 512, None), ("pytorch", 64, 8), ("libother.so", 256, None)):
        columns = "rank, address, bytes, owner, api, alloc_ns, free_ns"
        ledger.execute(f"INSERT INTO host_segment({columns}) VALUES(1, 4096, ?, ?, 'x', 5, ?)", (size, owner, free_ns))
    own, none = {"allocated": 900, "reserved": 1800}, {"allocated": 0, "reserved": 0}
    return {
        0: {"at_ns": 10, "devices": [own, none], "host": {"allocated": 0}},
        1: {"at_ns": 10, "devices": [{"allocated": 600, "reserved": 1200}, own], "host": {"allocated": 512}},
    }


def test_every_gpu_and_the_host_have_what_pytorch_says_of_each_rank(ledger, two_gpus):
    assert compared_devices(two_gpus, ledger).passed
    assert compared_host(two_gpus, ledger).passed
    ledger.execute("UPDATE segment SET bytes = bytes + 1 WHERE rank = 1 AND device = 0")
    ledger.execute("UPDATE host_segment SET free_ns = 11 WHERE free_ns = 8")
    assert not compared_devices(two_gpus, ledger).passed
    assert not compared_host(two_gpus, ledger).passed


def test_a_job_that_held_nothing_on_anothers_gpu_nor_pinned_shows_nothing(ledger, two_gpus):
    for table in ("allocation", "segment"):
        ledger.execute(f"DELETE FROM {table} WHERE rank = 1 AND device = 0")
    ledger.execute("DELETE FROM host_segment")
    two_gpus[1]["devices"][0] = {"allocated": 0, "reserved": 0}
    two_gpus[1]["host"]["allocated"] = 0
    assert not compared_devices(two_gpus, ledger).passed
    assert not compared_host(two_gpus, ledger).passed


def test_a_rank_whose_device_was_never_sampled_fails(ledger):
    ledger.execute("INSERT INTO device_sample(rank, device, at_ns, total_bytes, used_bytes, sampled_by) VALUES(0, 0, 5, 9000, 1000, 'driver')")
    ledger.execute("INSERT INTO device_owner VALUES(0, 0, 5, 'allocated', 1000)")
    ledger.executemany("INSERT INTO rank(rank) VALUES(?)", [(0,), (1,)])
    result = check_balance("run", ledger)
    assert not result.passed and "none of 1 ranks" in result.figure
