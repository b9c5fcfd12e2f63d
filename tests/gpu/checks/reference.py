"""The reference workload, attached in both ways that users have."""

import json

from .attribution import check_attribution
from .balance import check_balance, check_sampling
from .bounds import check_bounds
from .consistency import check_consistency
from .harness import ROOT, CheckFailed, Result, attempt, shardledger
from .tracker import check_tracker
from .truth import check_exact, read_truth

STEPS = 6


def check_job(name, run, ranks, tracked):
    """Everything that is checked of each training job."""
    with run.ledger() as ledger:
        yield attempt(f"{name}: bytes", lambda: check_exact(name, read_truth(run.truth), ledger))
        yield attempt(f"{name}: unattributed", lambda: check_attribution(name, ledger))
        yield attempt(f"{name}: device balance", lambda: check_balance(name, ledger))
        yield attempt(f"{name}: sampled by NVML", lambda: check_sampling(name, ledger))
        yield attempt(f"{name}: consistency", lambda: check_consistency(name, ledger))
        if tracked:
            yield attempt(f"{name}: tracker", lambda: check_tracker(name, run.truth, ledger))
        yield attempt(f"{name}: recorded", lambda: check_recorded(name, ledger, len(run.processes()), ranks, run.seconds))


def check_recorded(name, ledger, processes, ranks, seconds):
    """Every rank is there, to its end, with nothing lost, and with collectives of which some have times."""
    one = lambda sql: ledger.execute(sql).fetchone()[0]  # noqa: E731
    recorded, lost = one("SELECT count(*) FROM rank"), one("SELECT coalesce(sum(events_lost), 0) FROM rank")
    unclean = one("SELECT count(*) FROM rank WHERE clean_exit IS NOT 1")
    calls, timed = ledger.execute("SELECT count(*), count(start_ns) FROM collective").fetchone()
    silent = one("SELECT count(*) FROM rank WHERE rank NOT IN (SELECT rank FROM collective WHERE start_ns IS NOT NULL)")
    return Result(
        f"{name}: recorded",
        recorded == processes == ranks and not lost and not unclean and not silent,
        f"{recorded} ranks, {processes} process directories of {ranks} (the launcher leaves none), {lost} events lost, "
        f"{unclean} unclean exits, {timed} of {calls} collectives timed"
        + (f" and none in {silent} of the ranks" if silent else "")
        + f", {seconds:.0f} s",
    )


def check_reference(harness):
    run = harness.train("reference", options=["--steps", STEPS, "--truth", "truth", "--tracker"])
    yield from check_job("reference", run, harness.ranks, tracked=True)
    with run.ledger() as ledger:
        yield attempt("reference: bounds", lambda: check_bounds("reference", ledger))
    yield attempt("commands", lambda: check_commands(harness, run))


def check_environment(harness):
    run = harness.train("environment", options=["--steps", STEPS, "--truth", "truth"], attach="environment")
    yield from check_job("environment", run, harness.ranks, tracked=False)


def check_demo(harness):
    """What scripts/demo records: a job without truth files, so the replay's own check against PyTorch has to do."""
    run = harness.train("demo", ROOT / "scripts" / "demo_job.py")
    (harness.out / "demo-peaks.txt").write_text(shardledger("peaks", run.directory))
    with run.ledger() as ledger:
        steps, agreed = ledger.execute("SELECT count(*), coalesce(sum(checked), 0) FROM step").fetchone()
        yield check_attribution("demo", ledger)
    figure = f"{steps} steps of {harness.ranks} ranks, PyTorch's statistics agreed at the end of {agreed}"
    yield Result("demo: steps", steps == agreed == 4 * harness.ranks, figure)


def check_commands(harness, run):
    """Each command answers, and shows every FSDP module; what they print is kept for the reader."""
    commands = {
        "info": ["info", run.directory],
        "peaks": ["peaks", run.directory],
        "snapshots": ["snapshots", run.directory, "blocks.0"],
        "device": ["device", run.directory],
        "device-by-step": ["device", run.directory, "--by", "step"],
        "oom": ["oom", run.directory],
        "dump": ["dump", run.directory],
        "doctor": ["doctor"],
    }
    silent, failed = [], []
    for name, arguments in commands.items():
        try:
            text = shardledger(*arguments)
        except CheckFailed as problem:
            failed.append(str(problem))
            continue
        if not text.strip():
            silent.append(name)
        (harness.out / f"command-{name}.txt").write_text(text[:100_000])
    with run.ledger() as ledger:
        absent = {
            view: fqns
            for view in ("module_peaks", "fsdp_snapshot")
            if (fqns := fsdp_modules_absent_from(ledger, view))
        }
        modules = ledger.execute("SELECT count(DISTINCT fqn) FROM module WHERE is_fsdp = 1").fetchone()[0]
    rows = json.loads(shardledger("query", "SELECT rank, step FROM step", run.directory, "--json"))
    if not rows:
        raise CheckFailed("shardledger query --json printed no row")
    figure = f"{len(commands) + 1 - len(failed)} of {len(commands) + 1} commands answered; {modules} FSDP modules"
    figure += f"; {'; '.join(failed)}" if failed else ""
    figure += f"; silent: {', '.join(silent)}" if silent else ""
    figure += f"; not shown: {absent}" if absent else ", all in both views"
    return Result("commands", bool(modules) and not failed and not silent and not absent, figure)


def fsdp_modules_absent_from(ledger, view):
    """FQNs of FSDP modules without a row in the view."""
    query = f"SELECT DISTINCT fqn FROM module WHERE is_fsdp = 1 AND id NOT IN (SELECT module_id FROM {view} WHERE module_id IS NOT NULL) ORDER BY fqn"
    return [fqn for (fqn,) in ledger.execute(query)]
