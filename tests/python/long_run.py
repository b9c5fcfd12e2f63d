"""A long run's ledger for tests, made by repeating the steps of a recorded one: its rows, moved in time."""

import shutil
import sqlite3

STEP_TABLES = ("step", "phase", "allocation", "peak", "peak_category", "peak_owner", "collective")
DETAIL_TABLES = ("phase", "allocation", "peak", "peak_owner", "collective")  # what a step that repeats another leaves out
SAMPLE_TABLES = ("device_sample", "device_owner")
RANK_TABLES = ("rank", "module", "source", "communicator", *STEP_TABLES, *SAMPLE_TABLES)
TIMES = {"start_ns", "end_ns", "peak_ns", "alloc_ns", "free_ns", "complete_ns", "enqueue_ns", "at_ns"}
IDS = {"id", "parent_id", "root_id", "module_id", "peak_module_id", "phase_id", "free_phase_id", "peak_phase_id",
       "send_allocation_id", "receive_allocation_id"}
PERIOD = 3  # steps 1 to 3 are what repeats: step 0 warms up


def repeat(source, target, ranks, steps, full_every):
    """Makes target of source, of which every full_every-th repetition has rows of its own; the others point to steps 1 to 3."""
    shutil.copy(source, target)
    db = sqlite3.connect(target)
    db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; CREATE TEMP TABLE repetition(n INTEGER)")
    # What repeats, of each rank: from where, to where, how long.
    db.execute("CREATE TEMP TABLE period AS SELECT a.rank, a.start_ns AS since, b.start_ns AS until, b.start_ns - a.start_ns AS length"
               " FROM step a JOIN step b ON b.rank = a.rank WHERE a.step = 1 AND b.step = ?", (1 + PERIOD,))

    def period(what, table):
        return f"(SELECT {what} FROM period WHERE period.rank = {table}.rank)"

    count = -(-(steps - 1) // PERIOD) - 1
    db.executemany("INSERT INTO repetition VALUES (?)", [(n,) for n in range(1, count + 1)])

    def columns(table):
        return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]

    def copy(table, change, where):
        names = columns(table)
        db.execute(f"INSERT INTO {table}({', '.join(names)}) SELECT {', '.join(change(table, name) for name in names)} FROM {table}, repetition"
                   f" WHERE {where}")

    def later(table, name):
        if name in ("step", "last_step"):
            return f"{name} + {PERIOD} * n"
        if name in TIMES:
            return f"{name} + n * {period('length', table)}"
        if name == "same_as":
            return f"iif(n % {full_every}, step, NULL)"
        # Modules are the same in every step; the rest gets ids of its own.
        return f"{name} + n * {1 << 24}" if name in IDS and "module" not in name else name

    for table in STEP_TABLES:
        db.execute(f"DELETE FROM {table} WHERE step > {PERIOD}")
    for table in SAMPLE_TABLES:
        db.execute(f"DELETE FROM {table} WHERE at_ns >= {period('until', table)}")
    for table in ("snapshot", "segment", "kernel"):
        db.execute(f"DELETE FROM {table}")
    # What was there before the steps that repeat is there to the end.
    db.execute(f"UPDATE allocation SET free_ns = NULL WHERE coalesce(step, 0) = 0 AND free_ns >= {period('until', 'allocation')}")
    # Gradients die at a step's start, however slow the step was that followed in the recorded run.
    db.execute(f"UPDATE allocation SET free_ns = min(free_ns, {period('until', 'allocation')} + 100000) WHERE step >= 1")
    for table in STEP_TABLES:
        only = f" AND n % {full_every} = 0" if table in DETAIL_TABLES else ""
        copy(table, later, f"step BETWEEN 1 AND {PERIOD}{only}")
    # What outlives a step without rows and dies in one with rows has a row all the same.
    copy("allocation", later, f"step BETWEEN 1 AND {PERIOD} AND free_ns >= {period('until', 'allocation')}"
                              f" AND n % {full_every} = {full_every - 1}")
    for table in SAMPLE_TABLES:
        copy(table, later, f"at_ns >= {period('since', table)}")
    for table in STEP_TABLES:
        db.execute(f"DELETE FROM {table} WHERE step >= {steps}")
    db.execute(f"UPDATE rank SET end_ns = end_ns + {count} * {period('length', 'rank')}, world_size = {ranks}")
    for rank in range(2, ranks):
        for table in RANK_TABLES:
            names = columns(table)
            values = [str(rank) if name == "rank" else f"{name} + {(rank - rank % 2) << 40}" if name in IDS else name
                      for name in names]
            db.execute(f"INSERT INTO {table}({', '.join(names)}) SELECT {', '.join(values)} FROM {table} WHERE rank = {rank % 2}")
    db.executescript("DELETE FROM rank_steps; INSERT INTO rank_steps SELECT rank, count(*), count(*) - count(same_as),"
                     " sum(checked IS 1), sum(checked IS 0), min(step), max(step) FROM step GROUP BY rank")
    db.commit()
    db.close()
    return target
