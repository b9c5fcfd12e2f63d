"""The ledger against an oracle that computes its figures by another way (oracle.py), on recorded runs and on logs made of them."""

import collections
import functools
import gc
import os
import pathlib
import random
import sqlite3
import subprocess

import pytest
from conftest import BUILD
from oracle import collectives
from oracle_jobs import BEGIN_NS, Job
from oracle_log import LOST, Event, Log, write
from oracle_owners import Story
from oracle_parts import NEVER

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
COMMAND = os.path.join(BUILD, "bin", "shardledger")
REPEAT = os.path.join(BUILD, "bin", "repeat_steps")
RUNS = sorted({path.parent for path in DATA.glob("**/*-*-*") if path.is_dir() and list(path.glob("*.slog*"))})
PERIODS = ("setup", "step", "between", "end", "whole", "cut")
# Without a trace: allocators whose tensors are the driver's calls, and what PyTorch's own history has, by its own times.
NO_TRACE = ("cuda-malloc-async", "no-caching", "history")

pytestmark = pytest.mark.skipif(not os.path.exists(COMMAND), reason=f"{COMMAND} is not built")


@pytest.fixture(autouse=True)
def no_garbage():
    """A replay makes many objects that stay, which the collector would look through again and again."""
    gc.disable()
    yield
    gc.enable()


def ingest(run, output, *options):
    subprocess.run([COMMAND, "ingest", run, "-o", output, *options], check=True, capture_output=True, timeout=600)
    return sqlite3.connect(output)


def differences(expected, found):
    return {key: (expected.get(key), found.get(key)) for key in {*expected, *found} if expected.get(key) != found.get(key)}


class Told:
    """What a ledger says of one rank, in the oracle's terms: modules by the log's own numbers."""

    def __init__(self, db, rank):
        self.db, self.rank = db, rank
        self.device = self.rows("SELECT device FROM rank WHERE rank = ?")[0][0]
        self.first = (self.rows("SELECT min(id) FROM module WHERE rank = ?")[0][0] or 1) - 1

    def rows(self, sql):
        return self.db.execute(sql, (self.rank,)).fetchall()

    def module(self, number):
        return number and number - self.first

    def periods(self):
        return {row[0]: row[1:] for row in self.rows("""
            SELECT period, kind, step, name, start_ns, end_ns,
              peak_requested_bytes, peak_allocated_bytes, peak_active_bytes, peak_reserved_bytes,
              end_requested_bytes, end_allocated_bytes, end_active_bytes, end_reserved_bytes, end_largest_free_bytes,
              end_inactive_split_bytes FROM period WHERE rank = ?""")}

    def steps(self):
        return {row[0]: row[1:] for row in self.rows("""
            SELECT step, period, peak_allocated_bytes, before_allocated_bytes, before_reserved_bytes FROM step WHERE rank = ?""")}

    def life(self):
        return self.rows("""SELECT periods, peak_period, highest_step_period, peak_requested_bytes, peak_allocated_bytes,
                            peak_active_bytes, peak_reserved_bytes FROM life WHERE rank = ?""")[0]

    def life_peak(self):
        return self.rows("SELECT period, peak_allocated_bytes, unattributed_bytes, highest_step_bytes FROM life_peak WHERE rank = ?")[0]

    def peaks(self):
        cursor = self.db.execute("SELECT * FROM module_peaks WHERE rank = ?", (self.rank,))
        names, found = [column[0] for column in cursor.description], {}
        for row in (dict(zip(names, values)) for values in cursor):
            categories = {name[:-6]: row[name] for name in names[names.index("unattributed_bytes"):] if row[name]}
            assert sum(categories.values()) == row["allocated_bytes"]
            whole = row["phase"] in PERIODS  # no kind of a phase with a peak
            found[row["period"], self.module(row["module_id"]), None if whole else row["phase"]] = [
                row["allocated_bytes"], categories, row["own_bytes"] or 0, row["own_with_children_bytes"] or 0]
        return found

    def categories(self):
        found = collections.defaultdict(dict)
        for period, category, size in self.rows("SELECT period, category, bytes FROM category_at_peak WHERE rank = ?"):
            found[period][category] = size
        return dict(found)

    def owners(self):
        found = collections.defaultdict(dict)
        for period, category, detail, module, size in self.rows("""
                SELECT s.period, category, detail, module_id, sum(bytes) FROM period_place s JOIN peak_owner o ON o.rank = s.rank
                AND o.period = s.rows_of WHERE s.rank = ? GROUP BY s.period, category, detail, module_id"""):
            found[period][category, detail, self.module(module)] = size
        return dict(found)

    def growth(self):
        return {(category, detail, self.module(module), phase): sums for category, detail, module, phase, *sums in self.rows("""
            SELECT category, detail, module_id, phase, bytes, allocations, births, late_births, gone_births FROM owner_growth WHERE rank = ?""")}

    def survivors(self):
        return {(step, module, category, detail): [size, count, kept] for step, module, category, detail, size, count, kept in
                self.rows("""SELECT step, module, category, detail, sum(bytes), sum(allocations), sum(kept_bytes)
                             FROM survivors WHERE rank = ? GROUP BY 1, 2, 3, 4""")}

    def collectives(self):
        found = collections.defaultdict(lambda: [0, 0])
        for step, operation, calls, size in self.rows("""
                SELECT step, operation, 1, bytes FROM collective WHERE rank = ?1 UNION ALL
                SELECT iif(before, NULL, step), operation, calls, bytes FROM collective_total WHERE rank = ?1"""):
            found[step, operation][0] += calls
            found[step, operation][1] += size or 0
        return dict(found)

    def allocations(self):
        found = collections.defaultdict(list)
        for row in self.rows("""
                SELECT a.device, a.address, a.bytes, a.requested_bytes, a.period, a.step, a.free_ns IS NULL, a.category, a.detail,
                  a.decided_by, a.module_id, p.kind, p.name FROM allocation a LEFT JOIN phase p ON p.id = a.phase_id
                WHERE a.rank = ? ORDER BY a.id"""):
            found[row[:2]].append((*row[2:10], self.module(row[10]), *row[11:]))
        return dict(found)


def life_peak(story, peaks):
    _, highest, step, _, size, *_ = story.life()
    unattributed = peaks[highest, None, None][1].get("unattributed", 0) if highest is not None else 0
    return highest, size, unattributed, story.periods[step].peaks[1] if step is not None else None


def compare(log, story, told, whole):
    """What the ledger says otherwise than the oracle: {table: {key: (oracle, ledger)}}. whole: all rows were kept."""
    peaks, owners = story.peaks(told.device)
    names = dict(told.rows("SELECT id, name FROM module_name WHERE rank = ?"))
    survivors = collections.defaultdict(lambda: [0, 0, 0])
    for (step, module, category, detail), sums in story.survivors().items():
        name = names.get(module and module + told.first, "")  # the view knows modules by name
        survivors[step, name, category, detail] = [a + b for a, b in zip(survivors[step, name, category, detail], sums)]
    found = {
        "period": differences(story.period_figures(), told.periods()),
        "step": differences({p.step: (p.number, p.peaks[1], before.peaks[1], before.peaks[3])
                             for before, p in zip(story.periods, story.periods[1:]) if p.kind == "step"}, told.steps()),
        "period_place": differences(story.places(), dict(told.rows("SELECT period, place FROM period_place WHERE rank = ?"))),
        "life": differences({None: story.life()}, {None: told.life()}),
        "life_peak": differences({None: life_peak(story, peaks)}, {None: told.life_peak()}),
        "peak": differences(peaks, told.peaks()),
        "category_at_peak": differences({period: held for (period, module, phase), (_, held, _, _) in peaks.items()
                                         if not phase and held}, told.categories()),
        "peak_owner": differences({period: held for period, held in owners.items() if held}, told.owners()),
        "growth": differences(story.growth(), told.growth()),
        "survivors": differences(dict(survivors), told.survivors()),
    }
    if log.domains and any(event.type == "range_payload" for events in log.threads.values() for event in events):
        found["collective"] = differences(collectives(log), told.collectives())
    if whole:
        mine = collections.defaultdict(list)
        for a in story.allocations:
            phase = (a.phase.kind, a.phase.name) if a.phase else (None, None)
            mine[a.device, a.address].append((a.bytes, a.requested, a.period, a.step, a.free == NEVER, a.category, a.detail, a.rule,
                                              a.module, *phase))
        found["allocation"] = differences(dict(mine), told.allocations())
    return {table: rows for table, rows in found.items() if rows}


def check(run, directory, *options):
    """Compares the ledger of a run directory with the oracle's figures; of long logs one rank."""
    whole = "--keep" in options
    db = ingest(run, directory / f"{'whole' if whole else 'folded'}.sqlite", *options)
    processes = sorted(path for path in run.iterdir() if path.is_dir())
    for process in processes[: 1 if db.execute("SELECT max(events) FROM rank").fetchone()[0] > 12000 else None]:
        log, story = read(process)
        found = compare(log, story, Told(db, int(log.info.get("rank", 0))), whole)
        assert not found, f"{process.name}: " + "; ".join(
            f"{len(rows)} of {table}, first {sorted(rows.items(), key=str)[0]}" for table, rows in found.items())
    return db


@functools.lru_cache(maxsize=2)
def read(process):
    log = Log(process)
    return log, Story(log)


@pytest.mark.parametrize("run", [pytest.param(run, id=str(run.relative_to(DATA))) for run in RUNS if run.name not in NO_TRACE])
def test_recorded_runs_have_the_figures_that_a_naive_replay_finds(run, tmp_path):
    check(run, tmp_path, "--keep", "all")
    check(run, tmp_path)


# ---- logs made of recorded ones ----
@functools.lru_cache(maxsize=3)
def log_of(name):
    """What was read is not changed; tests write threads of their own."""
    return Log(min(path for path in (DATA / name).iterdir() if path.is_dir()))


def written(directory, log, threads):
    """A run directory of one process that recorded these threads."""
    write(directory / "run" / "host-1-1", log.definitions, {o: events for o, events in threads.items() if events}, log.tids)
    return directory / "run"


def memory_threads(log):
    return [o for o, events in sorted(log.threads.items()) if any(event.type == "allocator" for event in events)]


@pytest.mark.parametrize("name", ["fsdp2-2rank-recompute", "matrix/fsdp1", "matrix/tracked-ddp", "matrix/late-attach"])
@pytest.mark.parametrize("part", [0.2, 0.7])
def test_a_run_that_was_killed_has_the_figures_of_what_was_recorded(name, part, tmp_path):
    log = log_of(name)
    times = [event.ns for events in log.threads.values() for event in events if event.type == "allocator"]
    end = min(times) + (max(times) - min(times)) * part
    end = sorted(times)[int(len(times) * part)] if end < sorted(times)[len(times) // 10] else end
    threads = {o: [event for event in events if event.ns <= end] for o, events in log.threads.items()}
    check(written(tmp_path, log, threads), tmp_path, "--keep", "all")


@pytest.mark.parametrize("name", ["fsdp2-2rank-recompute", "matrix/tracked-grouped", "matrix/tracked-plain-recompute"])
@pytest.mark.parametrize("delay_us", [5, 2000])
def test_a_thread_whose_clock_is_late_changes_no_figure(name, delay_us, tmp_path):
    """Within a thread the order is its own, the allocator's is that of its sequence numbers: times decide what is left."""
    log, choose = log_of(name), random.Random(delay_us)
    threads = dict(log.threads)
    for late in memory_threads(log):
        begin = choose.randrange(len(threads[late]))
        end = begin + choose.choice((10, 1000))
        ns, events = 0, []
        for position, event in enumerate(threads[late]):
            ns = max(ns, event.ns + 1000 * delay_us * (begin <= position < end))
            events.append(event._replace(ns=ns))
        threads[late] = events
    check(written(tmp_path, log, threads), tmp_path, "--keep", "all")


@pytest.mark.parametrize("name, all_of_it", [("fsdp2-2rank-recompute", True), ("fsdp2-2rank", True), ("matrix/fsdp1", False),
                                             ("matrix/tracked-grouped", True), ("matrix/tracked-ddp", True)])
@pytest.mark.parametrize("seed", range(8))
def test_a_thread_that_lost_a_stretch_has_the_figures_of_what_is_left(name, all_of_it, seed, tmp_path):
    """Its ranges end where the stretch begins. all_of_it: with the allocator's events, as a lost segment takes them. (Where the
    replay is contradicted for long, as of FSDP1, two replays may differ: there the ranges alone are lost.)"""
    log, choose = log_of(name), random.Random(seed)
    threads = {ordinal: list(events) for ordinal, events in log.threads.items()}
    events = threads[choose.choice(memory_threads(log))]
    begin = choose.randrange(1, len(events) - 1)
    end = min(len(events) - 1, begin + choose.choice((1, 10, 100, 1000)))
    kept = [event for event in events[begin:end] if event.type == "allocator" and not all_of_it]
    events[begin:end] = [Event(events[begin - 1].ns, LOST, {}, b""), *kept]
    check(written(tmp_path, log, threads), tmp_path, "--keep", "all")


def other_bytes(choose, log, threads):
    """One allocation of a later step is smaller than in the others."""
    flat = sorted((event.fields["sequence"], o, at) for o in memory_threads(log) for at, event in enumerate(threads[o])
                  if event.type == "allocator")
    at = choose.choice([i for i in range(len(flat) // 2, len(flat)) if threads[flat[i][1]][flat[i][2]].fields["action"] == 1])
    asked = threads[flat[at][1]][flat[at][2]].fields
    for _, o, position in flat[at:]:
        event = threads[o][position]
        if event.fields["address"] == asked["address"]:
            threads[o][position] = event._replace(fields={**event.fields, "bytes": asked["bytes"] // 2 or 1})
            if event.fields["action"] == 3:
                break


def other_owner(choose, log, threads):
    """A tensor from before the repeated steps gets another tag, or another module, in a later one."""
    o = choose.choice(memory_threads(log))
    at = choose.randrange(len(threads[o]) // 2, len(threads[o]))
    tags = [event for ordinal in memory_threads(log) for event in threads[ordinal] if event.type == "tag"][:100]
    tag, other = choose.choice(tags), choose.choice(tags)
    change = {key: other.fields[key] for key in choose.choice((("module",), ("category",), ("category", "module")))}
    threads[o].insert(at, tag._replace(ns=threads[o][at - 1].ns, fields={**tag.fields, **change}))


@pytest.mark.skipif(not os.path.exists(REPEAT), reason=f"{REPEAT} is not built")
@pytest.mark.parametrize("seed", range(4))
def test_steps_that_repeat_others_have_their_own_figures(seed, tmp_path):
    choose = random.Random(seed)
    name, first, last = choose.choice((("fsdp2-2rank-recompute", 2, 3), ("fsdp2-2rank-kernels", 2, 3)))
    source = min(path for path in (DATA / name).iterdir() if path.is_dir())
    subprocess.run([REPEAT, source, tmp_path / "host-1-1", str(first), str(last), "9"], check=True, capture_output=True)
    log = Log(tmp_path / "host-1-1")
    threads = {o: list(events) for o, events in log.threads.items()}
    for change in choose.sample((other_bytes, other_owner, other_owner), seed and 2):
        change(choose, log, threads)
    db = check(written(tmp_path, log, threads), tmp_path)
    assert db.execute("SELECT count(same_as) FROM step").fetchone()[0] > 0


# ---- jobs that never ran ----
@pytest.mark.parametrize("seed", range(12))
def test_jobs_made_up_by_chance_have_the_figures_that_a_naive_replay_finds(seed, tmp_path):
    job = Job(seed, expandable=seed % 3 == 0).train((3, 8, 0, 3, 5, 1)[seed % 6])
    write(tmp_path / "run" / "host-1-1", job.definitions, job.threads, job.tids)
    check(tmp_path / "run", tmp_path, "--keep", "all")
    check(tmp_path / "run", tmp_path)


@pytest.mark.parametrize("numbers", [(0, 0, 0, 0), (0, 1, 0, 1), (5, 2**53, 7, 7)])
def test_they_have_them_too_when_numbers_of_steps_come_twice(numbers, tmp_path):
    job = Job(sum(numbers) % 97).train(4, numbers)
    write(tmp_path / "run" / "host-1-1", job.definitions, job.threads, job.tids)
    db = check(tmp_path / "run", tmp_path, "--keep", "all")
    highest, expected = -1, {}
    for number in numbers:
        highest = number if highest < number < 2**53 else highest + 1
        if highest != number:
            expected[highest] = number
    assert dict(db.execute("SELECT step, recorded FROM renumbered_step")) == expected


@pytest.mark.parametrize("seed", range(6))
def test_they_have_them_too_when_they_are_killed(seed, tmp_path):
    job = Job(seed).train(3)
    end = job.choose.randrange(BEGIN_NS + 1, job.ns)
    threads = {thread: [event for event in events if event.ns <= end] for thread, events in job.threads.items()}
    write(tmp_path / "run" / "host-1-1", job.definitions, {o: events for o, events in threads.items() if events}, job.tids)
    check(tmp_path / "run", tmp_path, "--keep", "all")
