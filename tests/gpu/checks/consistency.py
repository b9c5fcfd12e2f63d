"""What must hold in every ledger, whatever the job: its tables tell one story. The queries are in consistency.sql."""

import bisect
import pathlib
import re

from .harness import Result

RULES = pathlib.Path(__file__).with_suffix(".sql").read_text()
QUERIES = {name: query for name, query in re.findall(r"^-- (?:always|sound): (.+)\n((?:(?!--).*\n)+)", RULES, re.M)}


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
