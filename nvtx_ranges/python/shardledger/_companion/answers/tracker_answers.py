"""What a memory tracker would say, read from the ledger of one process: SQL in, plain dicts out.

The instants that matter (a tracker is entered or left, is asked) are marks in the log. The ledger numbers the events of the
device's allocator in the order of its lock, so a mark is a number: that of the last event before it. A period with a mark of its
own name repeats no other, so all of its events are there.

What counts: all that was made in a scope; and of what was there before, parameters, buffers, gradients, optimizer state and inputs
of the models that the tracker follows, and what the user has named. The rest of it, such as cuBLAS's workspaces, is not the
tracker's. A total is then what the allocator counts without that.

Most periods of a job repeat an earlier one, and the ledger has the rows of that one only. Their events are the same in the same
order, so those of the one, moved by the distance of their first events, are those of the other.
"""

import bisect
import collections
import pathlib
import sqlite3
import weakref

OWNED = ("sharded_param", "unsharded_param", "param", "buffer", "sharded_grad", "unsharded_grad", "gradient", "optstate", "input")

_END = 1 << 62  # no event has this number

# made_at, gone_at: numbers of events. What was there before recording has no number, and comes before all.
_LIFE = f"""CREATE TEMP VIEW life AS
SELECT id, address, bytes, category, coalesce(alloc_event, 0) AS made_at,
  iif(free_ns IS NULL, {_END}, coalesce(free_event, 0)) AS gone_at,
  module_id, alloc_ns AS made_ns, coalesce(free_ns, {_END}) AS gone_ns
FROM allocation WHERE rank = (SELECT rank FROM rank) AND device = (SELECT device FROM rank)"""

_UNCOUNTED = "CREATE TEMP TABLE uncounted(id INTEGER PRIMARY KEY, bytes, category, gone_at, gone_ns, named)"

# A period's last event is the one before the next one's first.
_PERIODS = """
SELECT p.period, p.kind, p.step, coalesce(p.same_as, p.period) AS rows_of, s.step AS step_of_rows, p.start_ns, p.end_ns,
  p.first_allocator_event AS first, lead(p.first_allocator_event, 1, :end) OVER (ORDER BY p.period) - 1 AS last,
  p.first_allocator_event - s.first_allocator_event AS shift, p.peak_allocated_bytes AS peak
FROM period p JOIN period s ON s.rank = p.rank AND s.period = coalesce(p.same_as, p.period)
WHERE p.first_allocator_event IS NOT NULL ORDER BY p.period"""

# The highest total after an event of a period, from what was alive before it. Of what does not count, a free changes nothing.
_HIGHEST = """
WITH change(event, bytes) AS (
  SELECT made_at + :shift, bytes FROM life WHERE made_at BETWEEN :low - :shift AND :high - :shift
  UNION ALL SELECT gone_at + :shift, -bytes FROM life WHERE gone_at BETWEEN :low - :shift AND :high - :shift
  UNION ALL SELECT gone_at, bytes FROM uncounted WHERE gone_at BETWEEN :low AND :high
  UNION ALL SELECT :low - 1, 0)
SELECT event, total FROM (SELECT event, sum(sum(bytes)) OVER (ORDER BY event) AS total FROM change GROUP BY event)
ORDER BY total DESC, event LIMIT 1"""

_ALIVE = "SELECT category, sum(bytes) FROM life WHERE made_at <= :at AND gone_at > :at GROUP BY category"

Scope = collections.namedtuple("Scope", "begin end")  # marks, and within Answers numbers of events; end None: it goes on

Named = collections.namedtuple("Named", "address at")  # a storage that the user named at this mark


class TrackerError(RuntimeError):
    """A question that has no answer; the text says why, and what to do."""


class _Leaving:
    """Bytes by category of what is there, and goes bit by bit."""

    def __init__(self, db, table, column):
        rows = db.execute(f"SELECT {column}, category, bytes FROM {table} ORDER BY 1").fetchall()
        self._when = [when for when, _, _ in rows]
        self._rest = [collections.Counter()]  # from the last one to the first
        for _, category, size in reversed(rows):
            self._rest.append(self._rest[-1] + collections.Counter({category: size}))
        self._rest.reverse()

    def after(self, when):
        return self._rest[self.gone(when)]

    def gone(self, when):
        """How many are, by then."""
        return bisect.bisect_right(self._when, when)

    def between(self, low, high):
        """Whether something goes then."""
        return bisect.bisect_left(self._when, low) < bisect.bisect_right(self._when, high)


class Answers:
    """Of a ledger's connection, which gets temporary tables. words: the column of `category` with the tracker's words.

    scopes: in order; the last one is asked about. until: the mark that is "now". followed: numbers of models' roots in their process;
    calls: and of those that are called in the scope. named: what the user has named, and named_word the tracker's word for it."""

    def __init__(self, connection, words, scopes, until, followed=(), calls=True, named=(),
                 named_word="Other"):
        self._db, self._named_word = connection, named_word
        weakref.finalize(self, connection.close)
        (self.device,) = connection.execute("SELECT device FROM rank").fetchone()  # the GPU that the process uses, by its index
        self._word = dict(connection.execute(f"SELECT name, {words} FROM category"))
        self._db.execute(_LIFE)
        self._db.execute(_UNCOUNTED)
        self._until = self._event(until)
        first = scopes[-1].begin
        self._spans = [(self._instant(scope.begin), self._instant(scope.end) if scope.end else _END) for scope in scopes]
        scopes = [Scope(self._event(scope.begin), scope.end and self._event(scope.end)) for scope in scopes]
        self._scope = scopes[-1]
        roots = set(followed) | (self._called(self._instant(first)) if calls else set())
        self._find_uncounted(scopes, roots, [Named(one.address, self._event(one.at)) for one in named])

    def _event(self, mark):
        """The number of the allocator's last event before a mark."""
        at_ns = self._instant(mark)
        (number,) = self._db.execute("SELECT max(coalesce(max(iif(made_ns <= :at, made_at, 0)), 0), "
                                     "coalesce(max(iif(gone_ns <= :at, gone_at, 0)), 0)) FROM life", {"at": at_ns}).fetchone()
        return number

    def _instant(self, mark):
        found = self._db.execute("SELECT at_ns FROM mark WHERE name = ?", (mark,)).fetchone()
        if found is None:
            raise TrackerError(f"the record has no {mark!r}, so it was dropped or cut off: 'shardledger info' says why")
        return found[0]

    def _called(self, since_ns):
        """Roots of the models that were called since."""
        rows = self._db.execute("SELECT DISTINCT m.root_id FROM phase p JOIN module m ON m.id = p.module_id "
                                "WHERE p.kind IN ('forward', 'eval') AND p.start_ns >= ?", (since_ns,))
        return {_number(root) for root, in rows}

    def _find_uncounted(self, scopes, roots, named):
        """And what counts by its name only, of which the word is the user's."""
        self._db.create_function("is_followed", 1, lambda root: root is None or _number(root) in roots, deterministic=True)
        where = "made_at <= ? AND gone_at > ?"
        self._db.execute(f"INSERT INTO uncounted SELECT l.id, bytes, category, gone_at, gone_ns, 0 FROM life l "
                         f"LEFT JOIN module m ON m.id = l.module_id WHERE {where} "
                         f"AND NOT (category IN ({','.join('?' * len(OWNED))}) AND is_followed(m.root_id))",
                         (self._scope.begin, self._scope.begin, *OWNED))
        for scope in scopes[:-1]:
            self._db.execute("DELETE FROM uncounted WHERE id IN (SELECT id FROM life WHERE made_at > ? AND made_at <= ?)",
                             (scope.begin, scope.end))
        for address, at in named:
            self._db.execute(f"UPDATE uncounted SET named = 1 WHERE id IN (SELECT id FROM life WHERE address = ? AND {where})",
                             (address, at, at))
        self._db.execute("CREATE TEMP TABLE named AS SELECT * FROM uncounted WHERE named")
        self._db.execute("DELETE FROM uncounted WHERE named")
        # Each by what tells when it goes: numbers of events, or instants.
        self._left_out = {column: _Leaving(self._db, "uncounted", column) for column in ("gone_at", "gone_ns")}
        self._by_name = {column: _Leaving(self._db, "named", column) for column in ("gone_at", "gone_ns")}

    # ---- sums ----

    def _in_words(self, categories, at, column="gone_at"):
        """{word: bytes} of {category: bytes} then; at: a number of an event, or with column gone_ns an instant."""
        sums = collections.Counter()
        for category, size in categories:
            sums[self._word.get(category, "Other")] += size
        for category, size in self._left_out[column].after(at).items():
            sums[self._word.get(category, "Other")] -= size
        for category, size in self._by_name[column].after(at).items():
            sums[self._word.get(category, "Other")] -= size
            sums[self._named_word] += size
        return {word: size for word, size in sums.items() if size}

    def allocated(self):
        """All bytes of the allocator now, as torch.cuda.memory_allocated counts them."""
        return sum(size for _, size in self._db.execute(_ALIVE, {"at": self._until}))

    def _last(self):
        return self._until if self._scope.end is None else min(self._scope.end, self._until)

    def current(self):
        """{word: bytes} now. Once the scope has ended: of what was there at its end what is there still."""
        alive = self._db.execute("SELECT category, sum(bytes) FROM life WHERE made_at <= ? AND gone_at > ? GROUP BY category",
                                 (self._last(), self._until))
        return self._in_words(alive, self._until)

    def peak(self):
        """{word: bytes} at the highest total of the scope. The categories are those that the ledger knows by now."""
        begin, end = self._scope.begin, self._last()
        best = None
        for period in self._periods():
            low, high = max(period["first"], begin + 1), min(period["last"], end)
            if low > high + 1 or period["first"] > end or period["last"] < begin:
                continue
            found = self._highest(period, low, high)
            if best is None or found[0] > best[0]:
                best = (*found, period)
        if best is None:
            return self._in_words(self._db.execute(_ALIVE, {"at": begin}), begin)
        total, at, period = best
        if at is None:  # of a whole period the total was known before the event
            total, at, _ = self._within(period, period["first"], period["last"])
        words = self._in_words(self._db.execute(_ALIVE, {"at": at - period["shift"]}), at)
        if sum(words.values()) != total or total != best[0]:
            raise TrackerError(f"the highest point adds up to {sum(words.values())} bytes by category, and its period has {best[0]}: "
                               "please report it, with the run's directory")
        return words

    def _periods(self):
        cursor = self._db.execute(_PERIODS, {"end": _END})
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor]

    def _highest(self, period, low, high):
        """(total, event or None)"""
        whole = (low, high) == (period["first"], period["last"])
        if whole and not self._left_out["gone_at"].between(low, high) and period["peak"] is not None:
            return period["peak"] - self._uncounted_before(low), None
        return self._within(period, low, high)[:2]

    def _uncounted_before(self, event):
        """Bytes that don't count and are there until then."""
        return sum(self._left_out["gone_at"].after(event - 1).values())

    def _within(self, period, low, high):
        shift = period["shift"]
        before = sum(size for _, size in self._db.execute(_ALIVE, {"at": low - 1 - shift}))
        event, change = self._db.execute(_HIGHEST, {"shift": shift, "low": low, "high": high}).fetchone()
        return before - self._uncounted_before(low) + change, event, period

    # ---- modules ----

    def module_states(self, since):
        """{(module's number in its process, state): [{word: bytes}]}, in the order of time, of what modules reached in the scopes,
        from this mark on. Steps that repeat the same one share their dicts."""
        from_ns = self._instant(since)
        spans = [(max(begin, from_ns), end) for begin, end in self._spans if end > from_ns]
        states, of_step = collections.defaultdict(list), {}
        for period in self._periods():
            start, end, rows_of = period["start_ns"], period["end_ns"], period["rows_of"]
            if period["kind"] != "step" or not any(start <= last and end >= first for first, last in spans):
                continue
            if period["period"] == rows_of:  # a mark may lie in it
                taken = [one for one in self._states_of(period["step"], lambda at_ns: at_ns)
                         if any(first <= one[1] <= last for first, last in spans)]
            else:
                same = rows_of, self._left_out["gone_ns"].gone(start)
                if same not in of_step:
                    of_step[same] = self._states_of(period["step_of_rows"], lambda _, start=start: start)
                taken = of_step[same]
            for key, _, words in taken:
                states[key].append(words)
        return dict(states)

    def _states_of(self, step, instant):
        """[((module, state), at_ns, {word: bytes})] of a step with rows of its own. FSDPMemTracker keeps one Peak Forward a step."""
        rows = self._db.execute("SELECT module_id, state, call_index, at_ns, category, bytes FROM snapshot WHERE step = ? "
                                "ORDER BY module_id, state, call_index", (step,)).fetchall()
        groups = {}
        for module, state, call, at_ns, category, size in rows:
            groups.setdefault((_number(module), state, call), (at_ns, []))[1].append((category, size))
        taken, highest = [], {}
        for (module, state, _), (at_ns, categories) in groups.items():
            entry = ((module, state), at_ns, self._in_words(categories, instant(at_ns), "gone_ns"))
            if state != "Peak Forward":
                taken.append(entry)
            elif module not in highest or sum(entry[2].values()) > sum(highest[module][2].values()):
                highest[module] = entry
        return taken + list(highest.values())

    def blocks(self):
        """{address: bytes of the block} of what is alive now."""
        return dict(self._db.execute("SELECT address, bytes FROM life WHERE made_at <= ? AND gone_at > ?", (self._until, self._until)))


def _number(module_id):
    """A module's in its process: the ledger's ids are unique over all ranks."""
    return module_id & ((1 << 40) - 1)


def connect(path):
    """To a ledger's file, for reading."""
    return sqlite3.connect(pathlib.Path(path).resolve().as_uri() + "?mode=ro", uri=True)
