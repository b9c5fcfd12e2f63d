"""A long run's ledger for tests, made by repeating the steps of a recorded one: its rows, moved in time."""

import shutil
import sqlite3

STEP_TABLES = ("period", "phase", "allocation", "peak", "peak_category", "peak_owner", "collective")
DETAIL_TABLES = ("phase", "allocation", "peak", "peak_owner", "collective")  # what a step that repeats another leaves out
SAMPLE_TABLES = ("device_sample", "device_owner")
RANK_TABLES = ("rank", "module", "source", "communicator", *STEP_TABLES, *SAMPLE_TABLES)
TIMES = {"start_ns", "end_ns", "peak_ns", "alloc_ns", "free_ns", "complete_ns", "enqueue_ns", "at_ns"}
IDS = {"id", "parent_id", "root_id", "module_id", "peak_module_id", "phase_id", "free_phase_id", "peak_phase_id",
       "send_allocation_id", "receive_allocation_id"}
STEPS = 3  # steps 1 to 3 are what repeats, each with what is between it and the next one: step 0 warms up
FIRST, LAST = 3, 8  # their periods
LIFE = """DELETE FROM life; INSERT INTO life SELECT p.rank, count(*),
  (SELECT h.period FROM period h WHERE h.rank = p.rank AND h.peak_allocated_bytes IS NOT NULL
   ORDER BY h.peak_allocated_bytes DESC, h.period LIMIT 1),
  (SELECT h.period FROM period h WHERE h.rank = p.rank AND h.kind = 'step' AND h.peak_allocated_bytes IS NOT NULL
   ORDER BY h.peak_allocated_bytes DESC, h.period LIMIT 1), max(peak_requested_bytes), max(peak_allocated_bytes),
  max(peak_active_bytes), max(peak_reserved_bytes), max(peak_device_bytes) FROM period p GROUP BY p.rank"""


def repeat(source, target, ranks, steps, full_every):
    """Makes target of source, of which every full_every-th repetition has rows of its own; the others point to steps 1 to 3."""
    shutil.copy(source, target)
    db = sqlite3.connect(target)
    db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; CREATE TEMP TABLE repetition(n INTEGER)")
    # What repeats, of each rank: from where, to where, how long.
    db.execute("CREATE TEMP TABLE stretch AS SELECT a.rank, a.start_ns AS since, b.start_ns AS until, b.start_ns - a.start_ns AS length"
               " FROM step a JOIN step b ON b.rank = a.rank WHERE a.step = 1 AND b.step = ?", (1 + STEPS,))

    def stretch(what, table):
        return f"(SELECT {what} FROM stretch WHERE stretch.rank = {table}.rank)"

    count = -(-(steps - 1) // STEPS) - 1
    db.executemany("INSERT INTO repetition VALUES (?)", [(n,) for n in range(1, count + 1)])

    def columns(table):
        return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]

    def copy(table, change, where):
        names = columns(table)
        db.execute(f"INSERT INTO {table}({', '.join(names)}) SELECT {', '.join(change(table, name) for name in names)} FROM {table}, repetition"
                   f" WHERE {where}")

    def later(table, name):
        if name in ("step", "last_step"):
            return f"{name} + {STEPS} * n"
        if name in TIMES:
            return f"{name} + n * {stretch('length', table)}"
        if name == "period":
            return f"period + {LAST - FIRST + 1} * n"
        if name == "same_as":
            return f"iif(n % {full_every}, period, NULL)"
        # Modules are the same in every step; the rest gets ids of its own.
        return f"{name} + n * {1 << 24}" if name in IDS and "module" not in name else name

    def repeats(table):
        return f"period BETWEEN {FIRST} AND {LAST}" if "period" in columns(table) else f"step BETWEEN 1 AND {STEPS}"

    for table in STEP_TABLES:
        db.execute(f"DELETE FROM {table} WHERE {f'period > {LAST}' if 'period' in columns(table) else f'step > {STEPS}'}")
    for table in SAMPLE_TABLES:
        db.execute(f"DELETE FROM {table} WHERE at_ns >= {stretch('until', table)}")
    for table in ("snapshot", "segment", "kernel"):
        db.execute(f"DELETE FROM {table}")
    # What was there before the steps that repeat is there to the end.
    db.execute(f"UPDATE allocation SET free_ns = NULL WHERE coalesce(step, 0) = 0 AND free_ns >= {stretch('until', 'allocation')}")
    # Gradients die at a step's start, however slow the step was that followed in the recorded run.
    db.execute(f"UPDATE allocation SET free_ns = min(free_ns, {stretch('until', 'allocation')} + 100000) WHERE step >= 1")
    for table in STEP_TABLES:
        only = f" AND n % {full_every} = 0" if table in DETAIL_TABLES else ""
        copy(table, later, f"{repeats(table)}{only}")
    # What outlives a step without rows and dies in one with rows has a row all the same.
    copy("allocation", later, f"{repeats('allocation')} AND free_ns >= {stretch('until', 'allocation')}"
                              f" AND n % {full_every} = {full_every - 1}")
    for table in SAMPLE_TABLES:
        copy(table, later, f"at_ns >= {stretch('since', table)}")
    for table in STEP_TABLES:
        db.execute(f"DELETE FROM {table} WHERE {f'period > {2 * steps}' if 'period' in columns(table) else f'step >= {steps}'}")
    db.execute(f"UPDATE period SET kind = 'end' WHERE period = {2 * steps}")
    db.execute(f"UPDATE rank SET end_ns = end_ns + {count} * {stretch('length', 'rank')}, world_size = {ranks}")
    for rank in range(2, ranks):
        for table in RANK_TABLES:
            names = columns(table)
            values = [str(rank) if name == "rank" else f"{name} + {(rank - rank % 2) << 40}" if name in IDS else name
                      for name in names]
            db.execute(f"INSERT INTO {table}({', '.join(names)}) SELECT {', '.join(values)} FROM {table} WHERE rank = {rank % 2}")
    db.executescript("DELETE FROM rank_steps; INSERT INTO rank_steps SELECT rank, count(*), count(*) - count(same_as),"
                     " sum(checked IS 1), sum(checked IS 0), min(step), max(step) FROM step GROUP BY rank; " + LIFE)
    db.commit()
    db.close()
    return target
