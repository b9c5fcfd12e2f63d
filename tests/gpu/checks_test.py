"""The GPU checks can fail: each is given a ledger that is right, then one that is wrong in one place."""

import contextlib
import json
import sqlite3

import overhead
import pytest
from checks import report
from checks.attribution import check_attribution
from checks.balance import check_balance
from checks.bootstrap import interval
from checks.harness import ROOT, Result
from checks.main import run_check
from checks.oom import refused
from checks.tracker import check_tracker
from checks.truth import QUANTITIES, check_exact, read_truth
from checks.watch import pictured
from peers import Peer

SIZES = {"requested": 900, "allocated": 1024, "active": 1024, "reserved": 2 << 20}


@pytest.fixture
def ledger():
    """Two ranks, two steps, in the real tables; what the checks read through views is put in plain tables."""
    database = sqlite3.connect(":memory:")
    database.executescript((ROOT / "storage" / "schema.sql").read_text())
    database.execute("CREATE TABLE category_at_peak(rank, step, category, bytes)")
    database.execute("CREATE TABLE fsdp_snapshot(rank, step, fqn, call, state, category, bytes)")
    columns = [f"{when}_{quantity}_bytes" for when in ("peak", "end") for quantity in QUANTITIES]
    for rank in range(2):
        for step in range(2):
            values = [rank, step, 0, 1, 1, *(SIZES[quantity] for _ in range(2) for quantity in QUANTITIES)]
            database.execute(
                f"INSERT INTO step(rank, step, start_ns, end_ns, checked, {', '.join(columns)}) "
                f"VALUES({', '.join('?' * len(values))})",
                values,
            )
            for category, size in (("activation", 1023), ("unattributed", 1)):
                database.execute("INSERT INTO category_at_peak VALUES(?, ?, ?, ?)", (rank, step, category, size))
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
    ledger.execute(f"UPDATE step SET peak_{quantity}_bytes = peak_{quantity}_bytes - 1 WHERE rank = 1 AND step = 1")
    result = check_exact("run", read_truth(truth), ledger)
    assert not result.passed
    assert f"rank 1 step 1 {quantity}" in result.figure


def test_a_step_that_the_ledger_lacks_fails(ledger, truth):
    ledger.execute("DELETE FROM step WHERE rank = 0 AND step = 1")
    assert not check_exact("run", read_truth(truth), ledger).passed


def test_no_truth_is_no_success(ledger, tmp_path):
    assert not check_exact("run", read_truth(tmp_path / "truth"), ledger).passed


def test_an_end_may_differ_by_the_jobs_variables_only(ledger, truth):
    ledger.execute("UPDATE step SET end_allocated_bytes = end_allocated_bytes + 4096")
    assert check_exact("run", read_truth(truth), ledger).passed
    ledger.execute("UPDATE step SET end_allocated_bytes = end_allocated_bytes + (1 << 20)")
    assert not check_exact("run", read_truth(truth), ledger).passed


def test_a_step_whose_replay_disagreed_fails(ledger, truth):
    ledger.execute("UPDATE step SET checked = 0 WHERE step = 0")
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
    assert "rank 1 step 0" in result.figure


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


def test_a_check_that_breaks_is_a_failed_result():
    def breaks(harness):
        yield Result("first", True, "fine")
        raise RuntimeError("no ledger")

    results = run_check("breaks", breaks, None)
    assert [result.outcome for result in results] == ["pass", "FAIL"]
    assert "no ledger" in results[1].figure


def test_the_report_keeps_every_result(tmp_path):
    results = [Result("a", True, "1 | 2"), Result("b", False, "wrong"), Result("c", None, "no time left")]
    report.write(tmp_path, results, "2 × GPU", 12.3)
    page = (tmp_path / "gpu-check.md").read_text()
    assert "1 passed, 1 failed, 1 not run, in 12 s." in page
    assert "| a | pass | 1 / 2 | 0 |" in page
    assert [row["passed"] for row in json.loads((tmp_path / "gpu-check.json").read_text())["results"]] == [True, False, None]


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


def test_a_device_balance_that_does_not_add_up_or_explain_fails(ledger):
    assert not check_balance("run", ledger).passed  # without samples nothing is shown
    ledger.execute("INSERT INTO device_sample(rank, device, at_ns, total_bytes, used_bytes) VALUES(0, 0, 5, 9000, 1000)")
    for owner, size in (("allocated", 990), ("unexplained", 10)):
        ledger.execute("INSERT INTO device_owner VALUES(0, 0, 5, ?, ?)", (owner, size))
    assert check_balance("run", ledger).passed
    ledger.execute("UPDATE device_owner SET bytes = 11 WHERE owner = 'unexplained'")
    ledger.execute("UPDATE device_sample SET used_bytes = 1001")
    assert not check_balance("run", ledger).passed
    ledger.execute("UPDATE device_owner SET bytes = 9 WHERE owner = 'unexplained'")
    assert not check_balance("run", ledger).passed
