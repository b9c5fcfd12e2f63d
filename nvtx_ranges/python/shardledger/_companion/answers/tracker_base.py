"""What shardledger.MemTracker and FSDPMemTracker have in common: who answers, when they are entered, and how a question is asked.

PyTorch's watch every operator through a dispatch mode. These watch nothing: the job is recorded anyway, so a question reads the
record. A mark goes into the log, `shardledger ingest` makes a ledger of the log so far in a temporary file, and tracker_answers.py
asks that. So an answer has all that the ledger knows by then, and is the same that the whole run's ledger gives later.

Where there is no answer (fake tensors, a model on the CPU, a job that is not recorded) PyTorch's own classes take over.
"""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import typing
import warnings
import weakref

from ...kinds import KIND
from .. import guard, native
from ..layout import find_command
from . import follower, tracker_answers
from .tracker_answers import TrackerError

if typing.TYPE_CHECKING:
    import torch

_USER = KIND["user"]
_OTHER = "Other"  # FSDPMemTracker has no word for it

if "_numbers" not in globals():  # a reloaded module goes on counting
    _numbers = itertools.count(1)  # of marks: a period with one whose name is its own repeats no other


# PyTorch's classes, by module and name; before a program puts these here in their place, where it has imported them by then.
_PYTORCHS = (("torch.distributed._tools.mem_tracker", "MemTracker"), ("torch.distributed._tools.fsdp2_mem_tracker", "FSDPMemTracker"))
if "_found" not in globals():
    _found = {name: getattr(sys.modules[module], name) for module, name in _PYTORCHS if hasattr(sys.modules.get(module), name)}


def _pytorchs(name):
    if name not in _found:
        module = importlib.import_module(dict(map(reversed, _PYTORCHS))[name])
        if issubclass(getattr(module, name), Tracker):
            raise TrackerError(f"PyTorch's own {name} is needed here and was replaced before shardledger.{name} was imported: "
                               "import that first")
        _found[name] = getattr(module, name)
    return _found[name]


def _mark(what):
    name = f"memory tracker, mark {next(_numbers)}: {what}"
    native.mark(_USER, name.encode(), 0)
    return name


def _why_not():
    """Why a tracker of this process can't be answered from its ledger; None: it can."""
    native.load()
    native.find_plugin()
    if not native.recording():
        return "this process is not recorded (shardledger run -- python …)"
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return "CUDA was not used yet"
    if not guard.on:
        return "the companion is off (SHARDLEDGER_PYTHON, or it failed)"
    from ..allocations import bridge

    if bridge._allocator != "bridge":
        return "the allocator's events are not recorded as they happen ('shardledger doctor' says why)"
    return None if find_command() else "the command shardledger is not installed beside this package, and not on PATH"


def _ingest():
    """A connection to the ledger of this process's log so far, whose file is gone already."""
    command, directory = find_command(), tempfile.mkdtemp(prefix="shardledger-tracker-")
    path = os.path.join(directory, "ledger.sqlite")
    try:
        done = subprocess.run([command, "ingest", follower.own_directory(), "-o", path, "--jobs", "1"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=follower.environment(), encoding="utf-8",
                              errors="replace")
        if done.returncode != 0:
            why = " ".join(done.stderr.replace("shardledger: ", "").split())
            raise TrackerError(f"the record could not be read: {why or f'shardledger ended with {done.returncode}'}")
        return tracker_answers.connect(path)
    except OSError as error:
        raise TrackerError(f"the record could not be read: {error}") from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class Tracker:
    """What both have in common. handed_over_to: PyTorch's tracker that answers in this one's place, or None."""

    _pytorchs_name = _words = _named_word = ""  # PyTorch's class; column of the ledger's `category`; word of what the user has named
    _calls = True  # models that are called are followed, too

    def __init__(self):
        self.handed_over_to = None
        self._depth, self._scopes = 0, []
        self._since = None  # mark from which on modules' states count
        self._given = []  # what the user registered: (method, weak references), until it is known who answers
        self._models = []  # weak references to those that were given
        self._named = []  # tracker_answers.Named
        self._passing = {}  # module's number → bytes of its last call's inputs and outputs
        self._reading = None  # (the allocator's events at that time, Answers)
        if self._active_fake_mode():
            self._hand_over("under FakeTensorMode there is no memory")

    # ---- who answers ----

    @staticmethod
    def _active_fake_mode():
        from torch._guards import active_fake_mode

        return active_fake_mode() is not None

    def _torchs_class(self):
        return _pytorchs(self._pytorchs_name)

    def _make_torchs(self):
        return self._torchs_class()()

    def _hand_over(self, why):
        guard.say_once("tracker", f"PyTorch's memory tracker answers in {self._pytorchs_name}'s place, at its own cost: {why}")
        self.handed_over_to = self._make_torchs()
        for method, references in self._given:
            self._hand_on(method, [thing for reference in references if (thing := reference()) is not None])
        self._given = []

    def _hand_on(self, method, things):
        getattr(self.handed_over_to, method)(*things)

    def _decide(self):
        """PyTorch's tracker, or None where the ledger answers."""
        if self.handed_over_to is None and not self._scopes:
            why = "under FakeTensorMode there is no memory" if self._active_fake_mode() else _why_not() or self._why_not_of_given()
            if why:
                self._hand_over(why)
        return self.handed_over_to

    def _why_not_of_given(self):
        from torch._subclasses.fake_tensor import FakeTensor

        from ..hooks import modules
        from ..tagging import tags

        tensors = [modules.local(tensor) for tensor in self._given_tensors()]
        if any(isinstance(tensor, FakeTensor) for tensor in tensors):
            return "fake tensors have no memory"
        if tensors and not any(tags.is_on_device(tensor) for tensor in tensors) and not self._runs_on_device():
            return "the model is not on a GPU"
        return None

    def _runs_on_device(self):
        return False

    def _given_tensors(self):
        import torch

        for given in self._given_things():
            if isinstance(given, torch.nn.Module):
                yield from itertools.chain(given.parameters(), given.buffers())
            elif isinstance(given, torch.optim.Optimizer):
                yield from (parameter for group in given.param_groups for parameter in group["params"])
            else:
                yield given

    def _given_things(self):
        return [thing for _, references in self._given for reference in references if (thing := reference()) is not None]

    def __getattr__(self, name):
        """What only PyTorch's tracker has, where that answers."""
        handed = self.__dict__.get("handed_over_to")
        if handed is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(handed, name)

    # ---- what is told to the ledger ----

    @guard.guarded
    def _know(self):
        """Names and tags what the user gave, which the companion else meets at its first call or step only."""
        from ..allocations import bridge

        for given in self._given_things():
            self._know_one(given)
        self._given = []
        bridge.tag_workspaces_now()

    def _know_one(self, given):
        import torch

        from ..hooks import modules
        from ..tagging import tags

        if isinstance(given, torch.nn.Module):
            self._models.append(weakref.ref(given))
            tags.not_called_yet(given)
            for parameter in modules.parameters_of(given):
                if parameter.grad is not None:
                    tags.gradient_of(parameter, parameter.grad)
        elif isinstance(given, torch.optim.Optimizer):
            tags.optimizer_state(given)
            tags.gradients(given)
        elif (where := tags.address_of(given)) is not None:
            self._named.append(tracker_answers.Named(where[1], _mark("named")))

    def _followed(self):
        """Numbers of the roots of the models that were given. A part of one may be all that is called."""
        from ..hooks import modules

        known = [modules.find(part) for reference in self._models if (model := reference()) is not None
                 for _, part, _, _ in modules.walk(model)]
        return {modules.root_of(one.entry).id for one in known if one is not None and one.entry is not None}

    def _give(self, method, things):
        if self.handed_over_to is not None:
            self._hand_on(method, things)
            return
        self._given.append((method, [weakref.ref(thing) for thing in things]))
        if self._depth:
            self._know()
            self._reading = None

    # ---- the scope ----

    def __enter__(self) -> typing.Self:
        if self._depth == 0 and self._decide() is not None:
            self.handed_over_to.__enter__()
        elif self.handed_over_to is None and self._depth == 0:
            self._know()
            self._scopes.append(tracker_answers.Scope(_mark("entered"), None))
            self._since = self._since or self._scopes[-1].begin
            self._reading = None
            self._watch(True)
        self._depth += 1
        return self

    def __exit__(self, *error) -> None:
        self._depth -= 1
        if self._depth:
            return
        if self.handed_over_to is not None:
            self.handed_over_to.__exit__(*error)
            return
        self._watch(False)
        self._scopes[-1] = self._scopes[-1]._replace(end=_mark("left"))
        self._reading = None

    def _watch(self, on):
        """Has the companion tell of calls."""

    # ---- questions ----

    def _answers(self, now=True):
        """now: of this instant; else of the scope, which may have ended."""
        torch = sys.modules["torch"]
        events = tuple(native.allocator_sequence(device) for device in range(torch.cuda.device_count()))
        of = events if now or not self._scopes or self._scopes[-1].end is None else None
        if self._reading is not None and (of is None or self._reading[0] == of):
            return self._reading[1]
        if not native.recording():
            raise TrackerError("recording has ended, and with it the tracker's answers; 'shardledger info' says why")
        allocated = self._allocated()
        until = _mark("asked")
        same = allocated == self._allocated()
        connection = _ingest()
        answers = tracker_answers.Answers(connection, self._words, self._scopes or [tracker_answers.Scope(until, None)], until,
                                          self._followed(), self._calls, self._named, self._named_word)
        told = answers.allocated()
        if same and answers.device is not None and told != allocated.get(answers.device, 0):
            warnings.warn(f"the ledger has {told} allocated bytes and PyTorch {allocated.get(answers.device, 0)}: "
                          f"'shardledger info {follower.own_directory()}' says what is missing", RuntimeWarning, stacklevel=4)
        self._reading = (events, answers)
        return answers

    @staticmethod
    def _allocated():
        torch = sys.modules["torch"]
        used = (device for device in range(torch.cuda.device_count()) if native.allocator_sequence(device))
        return {device: torch.cuda.memory_allocated(device) for device in used}

    def _snapshot(self, words, device):
        """{device: {key: bytes}} with PyTorch's keys; {} where there is nothing."""
        total = sum(words.values())
        if not total:
            return {}
        snapshot = {key: words.get(key.value, 0) for key in self._keys()}
        if _OTHER not in snapshot:
            snapshot[_OTHER] = words.get(_OTHER, 0)
        return {sys.modules["torch"].device("cuda", device): {**snapshot, "Total": total}}

    def get_tracker_snapshot(self, type: str = "current") -> dict[torch.device, dict[str, int]]:
        """Bytes by category: {device: {category: bytes, …, "Total": bytes}}, of the GPU that this process uses.

        type: "current", now; or "peak", where Total was highest since the tracker was entered. Keys are the members of PyTorch's
        enum, and FSDPMemTracker has "Other" besides. Bytes are those of the allocator's blocks, and add up to Total. {}: nothing
        is counted. Raises ValueError for another type, and TrackerError where the record can't be read."""
        if self._decide() is not None:
            return self.handed_over_to.get_tracker_snapshot(type)
        if type not in ("current", "peak"):
            raise ValueError(f"Invalid type {type}: it is 'current' or 'peak'")
        if type == "peak" and not self._scopes:
            return {}
        if not self._scopes:
            self._know()
        answers = self._answers(now=type == "current")
        return self._snapshot(answers.current() if type == "current" else answers.peak(), answers.device)

    @property
    def memory_tracking(self):
        """{module: its states}, weakly by the module: PyTorch's objects with mod_fqn, local_peak and snapshots[state][call], of the
        steps since the tracker was entered or reset. A snapshot is as in get_tracker_snapshot. Each access asks anew while the
        tracker is entered."""
        if self._decide() is not None:
            return self.handed_over_to.memory_tracking
        from torch.utils.weak import WeakIdKeyDictionary

        found = WeakIdKeyDictionary()
        if not self._scopes:
            return found
        answers = self._answers(now=False)
        states = answers.module_states(self._since)
        for module, name, number, taken in self._modules_with(states):
            stats = self._stats(name)
            for state in self._states():
                if state.value in taken:
                    stats.snapshots[state] = [self._snapshot(words, answers.device) for words in taken[state.value]]
                if state.value in taken and "Peak" in state.value:  # backward's comes last
                    stats.local_peak = {device: words["Total"] for device, words in stats.snapshots[state][-1].items()}
            self._fill(stats, module, number, answers)
            found[module] = stats
        return found

    def _modules_with(self, states):
        """(module, name as PyTorch's trackers have it, number, {state: [words]}) of the modules that are there still."""
        from ..hooks import modules

        by_module = {}
        for (number, state), snapshots in states.items():
            by_module.setdefault(number, {})[state] = snapshots
        for root in modules.roots():
            names = {}  # id(module) → its name; that of the outermost module that was called begins with its class
            wrapped = {id(known.entry) for _, module, _, _ in modules.walk(root) if (known := modules.find(module)) and known.alias}
            for _, module, parent, attribute in modules.walk(root):
                known = modules.find(module)
                taken = by_module.get(known.entry.id) if known is not None and known.entry is not None else None
                if parent is not None and id(parent) in names:
                    names[id(module)] = f"{names[id(parent)]}.{attribute}"
                elif taken:
                    names[id(module)] = type(module).__name__
                if taken and self._follows(module):
                    is_wrapper = id(known.entry) in wrapped and not known.alias
                    yield module, names[id(module)], known.entry.id, self._taken(taken, is_wrapper)

    def display_snapshot(self, type: str = "current", units: str = "B", tabulate: bool = False) -> None:
        """Prints get_tracker_snapshot(type). units: B, KiB, MiB or GiB, else ValueError. tabulate: as a table, which needs the
        package of that name."""
        self._torchs_class().display_snapshot(self.handed_over_to or self, type, units, tabulate)

    def display_modulewise_snapshots(self, depth: int = 2, units: str = "B", tabulate: bool = False) -> None:
        """Prints the snapshots of memory_tracking, by module and state, of modules down to this depth (1: the root). units,
        tabulate: as in display_snapshot."""
        self._torchs_class().display_modulewise_snapshots(self.handed_over_to or self, depth, units, tabulate)

    def reset_mod_stats(self) -> None:
        """Forgets the modules' states so far; the peak stays. Never needed between steps: each has its own entries."""
        if self.handed_over_to is not None:
            self.handed_over_to.reset_mod_stats()
            return
        self._since = _mark("reset") if native.recording() else self._since
        self._passing, self._reading = {}, None

    # ---- what differs ----

    def _keys(self):
        raise NotImplementedError

    def _stats(self, name):
        raise NotImplementedError

    def _states(self):
        raise NotImplementedError

    def _follows(self, module):
        return True

    def _taken(self, taken, is_wrapper):
        return taken

    def _fill(self, stats, module, number, answers):
        pass
