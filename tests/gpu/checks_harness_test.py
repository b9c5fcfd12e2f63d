"""The GPU checks' harness: what breaks is a failed result, what does not end is ended, what there was is kept."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checks import main, programs, report
from checks.harness import CheckFailed, Harness, OutOfTime, Result, Run, attempt, stop
from checks.variants import keep


def run(check, harness=None, seconds=1000):
    results = []
    main.run_check("name", check, harness, results, seconds)
    return results


def test_a_check_that_breaks_is_a_failed_result():
    def breaks(harness):
        yield Result("first", True, "fine")
        raise RuntimeError("no ledger")

    results = run(breaks)
    assert [result.outcome for result in results] == ["pass", "FAIL"]
    assert results[1].figure == "RuntimeError: no ledger"


def test_a_check_without_a_result_is_a_failed_result():
    (result,) = run(lambda harness: iter(()))
    assert (result.name, result.passed, result.figure) == ("name", False, "nothing was checked")


def test_a_check_that_breaks_leaves_the_others_of_its_job():
    def breaks():
        raise CheckFailed("no ledger")

    assert attempt("first", breaks) == Result("first", False, "no ledger")
    with pytest.raises(OutOfTime):
        run_out = OutOfTime("no end in 5 s")
        attempt("first", lambda: (_ for _ in ()).throw(run_out))


@pytest.fixture
def sleeper(tmp_path):
    """A harness with a job that never ends by itself."""
    (tmp_path / "sleep.py").write_text("import time\ntime.sleep(10_000)\n")
    harness = Harness(tmp_path, tmp_path / "work", 2)
    harness.torchrun = lambda: [sys.executable]
    return harness


def test_a_check_that_does_not_end_is_ended_with_its_job(sleeper):
    jobs = []

    def waits(harness):
        yield Result("first", True, "fine")
        with harness.started("sleep", harness.out / "sleep.py", attach=None) as (process, job):
            jobs.append(process)
            signal.raise_signal(signal.SIGALRM)  # as if the time were over
            harness.end(process, job, 10_000)

    results = run(waits, sleeper)
    assert [result.outcome for result in results] == ["pass", "FAIL"]
    assert results[1].figure == "no end in 1000 s"
    assert jobs[0].returncode == -signal.SIGTERM


def test_the_time_that_a_check_may_take_does_end_it():
    def waits(harness):
        time.sleep(10_000)
        yield

    (result,) = run(waits, seconds=0.01)
    assert not result.passed and result.figure.startswith("no end in")


def test_a_job_that_does_not_end_in_its_time_is_a_failure_in_words(sleeper):
    with pytest.raises(CheckFailed, match=r"the job did not end in 0.01 s; see sleep.log"):
        sleeper.train("sleep", sleeper.out / "sleep.py", timeout=0.01, attach=None)


def alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_worker_in_a_session_of_its_own_does_not_outlive_its_job():
    words = "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & wait"
    job = subprocess.Popen(["sh", "-c", words], stdout=subprocess.PIPE, start_new_session=True, text=True)
    worker = int(job.stdout.readline())
    assert alive(worker)
    stop(job)
    while alive(worker):
        time.sleep(0.01)
    job.stdout.close()


@pytest.fixture
def only_checks(monkeypatch):
    """Has main run these checks instead of its own."""
    monkeypatch.setattr(main, "requirement_unmet", lambda ranks: None)
    monkeypatch.setattr(report, "machine", lambda: "2 × GPU")
    before = signal.getsignal(signal.SIGTERM)
    yield lambda checks: monkeypatch.setattr(main, "checks", lambda *_: checks)
    signal.signal(signal.SIGTERM, before)


def outcomes(out):
    results = json.loads((out / "gpu-check.json").read_text())["results"]
    return {result["name"]: result["passed"] for result in results}


def fine(harness):
    yield Result("fine", True, "yes")


def test_what_would_end_after_the_budget_is_not_started(only_checks, tmp_path):
    only_checks({"a": (fine, 10), "long": (fine, 1001), "b": (fine, 10)})
    assert main.main(["--out", str(tmp_path), "--budget", "1000"]) == 1
    assert outcomes(tmp_path) == {"fine": True, "long": None}
    page = (tmp_path / "gpu-check.md").read_text()
    assert page.count("| fine | pass |") == 2 and "no time left of 1000 s" in page


def test_who_ends_the_checks_early_keeps_what_there_was(only_checks, tmp_path):
    def ended(harness):
        yield Result("half", True, "yes")
        signal.raise_signal(signal.SIGTERM)

    only_checks({"a": (fine, 10), "b": (ended, 10), "c": (fine, 10)})
    with pytest.raises(SystemExit) as end:
        main.main(["--out", str(tmp_path)])
    assert end.value.code == 143
    assert outcomes(tmp_path) == {"fine": True, "half": True}


def test_a_build_without_test_programs_or_their_libraries_has_not_failed_them(monkeypatch, tmp_path):
    for there in ([], [tmp_path / "some_test"]):
        monkeypatch.setattr(programs, "test_programs", lambda: there)
        monkeypatch.setattr(programs, "FAKES", tmp_path / "fakes")
        (result,) = run(programs.check_programs)
        assert result.passed is None, result.figure


@pytest.mark.parametrize("words", ["true", "echo No devices were found; exit 6", "exec sleep 10000"])
def test_a_machine_whose_driver_does_not_answer_is_named_without_gpus(monkeypatch, words):
    ask = subprocess.run
    limit = {"timeout": 0.2} if "sleep" in words else {}
    monkeypatch.setattr(subprocess, "run", lambda _, **how: ask(["sh", "-c", words], **{**how, **limit}))
    assert report.machine().startswith("0 × no GPU, driver none, PyTorch ")


def test_the_report_keeps_every_result(tmp_path):
    results = [Result("a", True, "1 |\n2"), Result("b", False, "wrong"), Result("c", None, "no time left")]
    report.write(tmp_path, results, "2 × GPU", 12.3)
    page = (tmp_path / "gpu-check.md").read_text()
    assert "1 passed, 1 failed, 1 not run, in 12 s." in page
    assert "| a | pass | 1 / 2 | 0 |" in page
    assert [row["passed"] for row in json.loads((tmp_path / "gpu-check.json").read_text())["results"]] == [True, False, None]


def test_a_recorded_run_has_its_logs_and_truth_and_a_limit_that_zeros_do_not_reach(tmp_path):
    job = Run("small", tmp_path / "run", tmp_path / "truth", tmp_path / "log", 0, 1.0)
    (job.directory / "host-1-1").mkdir(parents=True)
    (job.directory / "host-1-1" / "0.slog").write_bytes(bytes(5 << 20))
    for name in ("run/ledger.sqlite", "truth.rank0", "truth.tracker.rank0"):
        (tmp_path / name).write_text(name)
    result = keep(job, tmp_path / "kept")
    assert result.passed and "5.00 MiB in kept, 0.00 MiB packed" in result.figure
    kept = sorted(str(path.relative_to(tmp_path / "kept")) for path in (tmp_path / "kept").rglob("*") if path.is_file())
    assert kept == ["host-1-1/0.slog", "truth.rank0", "truth.tracker.rank0"]
    (job.directory / "host-1-1" / "0.slog").write_bytes(random.Random(1).randbytes(3 << 20))
    assert not keep(job, tmp_path / "kept").passed
