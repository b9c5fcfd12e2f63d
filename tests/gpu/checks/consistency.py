"""What must hold in every ledger, whatever the job: its tables tell one story.

Each query counts what contradicts; 0 is right.
"""

import bisect

from .harness import Result

ALIVE_AT_PEAK = """FROM allocation a JOIN rank USING (rank) WHERE a.rank = s.rank AND a.device = rank.device
                   AND a.alloc_ns <= s.peak_ns AND (a.free_ns IS NULL OR a.free_ns > s.peak_ns)"""

QUERIES = {
    "an allocation ends after it began": "SELECT count(*) FROM allocation WHERE free_ns < alloc_ns OR complete_ns < free_ns"
    " OR (free_ns IS NULL AND complete_ns IS NOT NULL)",
    "a block holds what was requested": "SELECT count(*) FROM allocation WHERE bytes <= 0 OR requested_bytes > bytes",
    "an allocation lies in a segment of its time": """
        SELECT count(*) FROM allocation a JOIN rank r USING (rank) WHERE r.allocator_backend = 'native' AND NOT EXISTS (
          SELECT 1 FROM segment s WHERE s.rank = a.rank AND s.device = a.device AND a.address >= s.address
          AND a.address < s.address + s.bytes AND s.alloc_ns <= a.alloc_ns AND coalesce(s.free_ns >= a.alloc_ns, 1))""",
    "segments do not overlap": """
        SELECT count(*) FROM segment a JOIN segment b ON a.rank = b.rank AND a.device = b.device AND a.id < b.id
        AND a.address < b.address + b.bytes AND b.address < a.address + a.bytes
        AND coalesce(a.alloc_ns < b.free_ns, 1) AND coalesce(b.alloc_ns < a.free_ns, 1)""",
    "a step's peak is what was alive then": f"""
        SELECT count(*) FROM step s WHERE same_as IS NULL
        AND peak_allocated_bytes <> (SELECT coalesce(sum(a.bytes), 0) {ALIVE_AT_PEAK})""",
    "categories add up to the peak": """
        SELECT count(*) FROM step s WHERE peak_allocated_bytes <> (
          SELECT coalesce(sum(bytes), 0) FROM category_at_peak c WHERE c.rank = s.rank AND c.step = s.step)""",
    "owners have the categories of the peak": """
        SELECT count(*) FROM category_at_peak c JOIN step s USING (rank, step) WHERE c.bytes <> (
          SELECT coalesce(sum(o.bytes), 0) FROM peak_owner o WHERE o.rank = c.rank
          AND o.step = coalesce(s.same_as, s.step) AND o.category = c.category)""",
    "categories add up to each module's peak": """
        SELECT count(*) FROM peak p WHERE allocated_bytes <> (SELECT coalesce(sum(bytes), 0) FROM peak_category c
          WHERE c.rank = p.rank AND c.step = p.step AND c.module_id IS p.module_id AND c.phase = p.phase)""",
    "no module's peak is above the step's": """
        SELECT count(*) FROM peak p JOIN step s USING (rank, step) WHERE p.allocated_bytes > s.peak_allocated_bytes
        OR p.at_ns NOT BETWEEN s.start_ns AND s.end_ns OR p.own_bytes > p.own_with_children_bytes""",
    "the step's own peak is its highest": """
        SELECT count(*) FROM peak p JOIN step s USING (rank, step) WHERE p.module_id IS NULL AND p.phase = 'step'
        AND p.allocated_bytes <> s.peak_allocated_bytes""",
    "allocated, active, reserved, device: each holds the one before": """
        SELECT count(*) FROM step WHERE peak_allocated_bytes > peak_active_bytes OR peak_active_bytes > peak_reserved_bytes
        OR peak_reserved_bytes > peak_device_bytes OR end_allocated_bytes > peak_allocated_bytes
        OR end_active_bytes > peak_active_bytes OR end_reserved_bytes > peak_reserved_bytes""",
    "a phase begins within the one around it": """
        SELECT count(*) FROM phase c JOIN phase p ON p.id = c.parent_id
        WHERE c.start_ns < p.start_ns OR c.start_ns > p.end_ns OR c.end_ns < c.start_ns""",
    "phases and allocations lie in their step": """
        SELECT (SELECT count(*) FROM phase p JOIN step s USING (rank, step) WHERE p.start_ns NOT BETWEEN s.start_ns AND s.end_ns)
          + (SELECT count(*) FROM allocation a JOIN step s USING (rank, step) WHERE a.alloc_ns < s.start_ns)""",
    "what is referred to is there": "SELECT "
    + " + ".join(
        f"(SELECT count(*) FROM {table} t WHERE {column} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {other} o WHERE o.id = t.{column}))"
        for table, column, other in (
            ("allocation", "phase_id", "phase"),
            ("allocation", "free_phase_id", "phase"),
            ("allocation", "module_id", "module"),
            ("segment", "phase_id", "phase"),
            ("host_segment", "phase_id", "phase"),
            ("phase", "parent_id", "phase"),
            ("phase", "module_id", "module"),
            ("module", "parent_id", "module"),
            ("collective", "phase_id", "phase"),
            ("collective", "send_allocation_id", "allocation"),
            ("collective", "receive_allocation_id", "allocation"),
        )
    ),
    "modules form trees": """
        SELECT count(*) FROM module c JOIN module p ON p.id = c.parent_id
        WHERE c.depth <> p.depth + 1 OR c.root_id <> p.root_id OR c.param_bytes > p.param_bytes""",
    "a collective has a time, or a reason why not": """
        SELECT count(*) FROM collective WHERE (start_ns IS NULL) = (untimed IS NULL) OR end_ns < start_ns
        OR exposed_ns > end_ns - start_ns OR start_ns < enqueue_ns - 100000""",
    "ranks agree on their collectives": """
        SELECT count(*) FROM collective a JOIN collective b ON a.comm = b.comm AND a.seq = b.seq AND a.rank < b.rank
        WHERE a.peer IS NULL AND b.peer IS NULL AND (a.operation <> b.operation OR a.bytes <> b.bytes)""",
    "calls that share a kernel know how many": """
        SELECT count(*) FROM (SELECT count(*) AS calls, max(kernel_calls) AS told FROM collective WHERE start_ns IS NOT NULL
          GROUP BY rank, stream, start_ns HAVING calls <> told)""",
    "the device's owners add up to what is used": """
        SELECT count(*) FROM (SELECT sum(CASE WHEN owner = 'used' THEN -bytes ELSE bytes END) AS difference
          FROM device_balance GROUP BY rank, at_ns HAVING difference <> 0)""",
    "a rank's steps are counted": """
        SELECT (SELECT count(*) FROM (SELECT rank, count(*), count(*) - count(same_as), sum(checked IS 1), sum(checked IS 0),
            min(step), max(step) FROM step GROUP BY rank EXCEPT SELECT * FROM rank_steps))
          + (SELECT count(*) FROM rank_steps WHERE rank NOT IN (SELECT rank FROM step))""",
    "a rank's totals of collectives add up": """
        SELECT (SELECT count(*) FROM (SELECT rank, comm, operation, sum(calls), sum(bytes), sum(timed), sum(duration_ns)
            FROM collective_total GROUP BY rank, comm, operation EXCEPT SELECT * FROM rank_collectives))
          + abs((SELECT count(*) FROM rank_collectives)
            - (SELECT count(*) FROM (SELECT DISTINCT rank, comm, operation FROM collective_total)))""",
}


def overlaps(ledger):
    """Allocations whose addresses were another one's at the same time."""
    count = 0
    for place in ledger.execute("SELECT DISTINCT rank, device FROM allocation").fetchall():
        events = []
        query = "SELECT address, bytes, alloc_ns, complete_ns FROM allocation WHERE rank = ? AND device = ?"
        for address, size, begin, end in ledger.execute(query, place):
            events.append((begin, 1, address, size))
            if end is not None:
                events.append((end, 0, address, size))
        live = []  # (address, bytes), sorted
        for _, begins, address, size in sorted(events):
            at = bisect.bisect_left(live, (address, 0))
            if begins:
                count += at < len(live) and live[at][0] < address + size
                count += at > 0 and sum(live[at - 1]) > address
                live.insert(at, (address, size))
            else:
                live.pop(at)
    return count


def contradictions(ledger):
    """{what does not hold: how often}"""
    found = {what: ledger.execute(query).fetchone()[0] for what, query in QUERIES.items()}
    found["allocations do not overlap"] = overlaps(ledger)
    return {what: count for what, count in found.items() if count}


def check_consistency(name, ledger):
    found = contradictions(ledger)
    words = "; ".join(f"'{what}' fails {count} times" for what, count in found.items())
    return Result(f"{name}: consistency", not found, words or f"{len(QUERIES) + 1} rules hold")
