"""A rehearsal: this process is rank R of N, and the other ranks are not there.

`shardledger rehearse` says which in the environment. What the job is told of its place comes from here; what stands in the
other ranks' place is mirror.py. The job ends where the step after the last one that was asked for would begin: so what follows
a step, as an evaluation or a checkpoint, is part of the rehearsal too. It ends by SystemExit on its main thread, because
that runs the program's own clean-up (finally, with, atexit), and no handler of errors takes it for one.

This module imports no torch: Python runs prepare() before the program.
"""

import ctypes
import os
import sys
import threading

from .. import imports

VARIABLE = "SHARDLEDGER_REHEARSAL"
ID_VARIABLE = "SHARDLEDGER_REHEARSAL_ID"
_GROUPS = 256  # that are told
_PATIENCE = 60  # seconds that a program may take to clean up

if "plan" not in globals():  # a reloaded module keeps its state
    plan = None  # of this process, once prepare() has read it
    _is_ending = False


class Plan:
    """What the command asks for: "rank=5 world=64 local_world=8 steps=3 memory=0 outcome=FILE", the file last."""

    def __init__(self, text):
        text, _, self.outcome = text.partition(" outcome=")
        values = dict(part.split("=", 1) for part in text.split())
        self.rank, self.world, self.local_world = (int(values[key]) for key in ("rank", "world", "local_world"))
        self.steps, self.memory = int(values["steps"]), int(values["memory"])

    def environment(self):
        """What torchrun would tell this rank, but that it has the first GPU, since there is one."""
        nodes = -(-self.world // self.local_world)
        return {"RANK": self.rank, "WORLD_SIZE": self.world, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": self.local_world,
                "GROUP_RANK": self.rank // self.local_world, "GROUP_WORLD_SIZE": nodes,
                "ROLE_RANK": self.rank, "ROLE_WORLD_SIZE": self.world}


class NotRehearsed(RuntimeError):
    """The program needs another rank's answer; the text says in which call."""


def read_plan():
    global plan
    if plan is None and os.environ.get(VARIABLE):
        plan = Plan(os.environ[VARIABLE])
    return plan


def prepare():
    """Before the program: its place, and what changes once torch is imported."""
    if read_plan() is None:
        return
    # Also below a launcher, which told its workers another place.
    os.environ.update((name, str(value)) for name, value in plan.environment().items())
    _when_imported("torch.distributed.distributed_c10d", "mirror", "install")
    _when_imported("torch.distributed", "mirror", "replace_stores")
    for module in ("torch.distributed.launcher.api", "torch.multiprocessing.spawn", "torch.distributed.checkpoint.utils",
                   "torch.distributed.checkpoint.default_planner", "torch.distributed.rpc", "torch.cuda.memory",
                   "lightning_fabric.plugins.environments.torchelastic",
                   "lightning.fabric.plugins.environments.torchelastic"):
        _when_imported(module, "launchers", "change", module)


def _when_imported(name, module, function, *arguments):
    def call():
        try:
            package = __import__(f"{__package__}.{module}", fromlist=[function])
            getattr(package, function)(*arguments)
        except Exception as error:
            say(f"{name} is as it would be without a rehearsal ({type(error).__name__}: {error})")

    if name in sys.modules:
        call()
    else:
        imports.when_imported(name, call)


def say(text):
    try:
        sys.stderr.write("shardledger: " + text + "\n")
    except Exception:  # a closed stderr is the user's choice
        pass


def said_file(number):
    """Where the objects of the number-th broadcast of a rehearsal are kept for the ranks that come after this one."""
    return f"{plan.outcome}.said-{number}"


def _note(line):
    """The command reads it: launchers between it and the job have exit statuses of their own."""
    try:
        with open(plan.outcome, "a", encoding="utf-8", errors="replace") as file:
            file.write(" ".join(line.split()) + "\n")
    except OSError as error:
        say(f"{plan.outcome} can't be written: {error}")


def note_refusal(what):
    say(f"a rehearsal can't go on: {what}")
    _note("refused " + what)


def refuse(what):
    note_refusal(what)
    raise NotRehearsed("shardledger rehearse: " + what)


def tell_facts():
    """Into the log, beside those that every process has."""
    from .. import facts

    if read_plan() is None:
        return
    facts.info("rehearsal", os.environ.get(ID_VARIABLE) or "1")
    facts.info("rehearsal_bytes", plan.memory or None)
    for key in ("rank", "world_size", "local_rank"):
        facts.info(key, plan.environment()[key.upper()])


def tell_group(number, ranks, uses):
    """A group that NCCL would have a communicator for, as "RANKS:USES" (mirror_group.cpp has the bits), at each new use."""
    from .. import facts, guard

    if guard.on and number <= _GROUPS:
        facts.info(f"rehearsed_group.{number}", f"{ranks}:{uses}")


def step_begins(number):
    """Called where a step is about to begin; does not return where it is one too many."""
    if plan is None:
        return
    if number >= plan.steps:
        _end()
    if plan.memory:
        from . import limit

        limit.adjust()


def _end():
    global _is_ending
    if not _is_ending:
        _is_ending = True
        _note(f"steps {plan.steps}")
        threading.Thread(target=_insist, name="shardledger", daemon=True).start()
        main = threading.main_thread()
        if threading.current_thread() is not main:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main.ident), ctypes.py_object(SystemExit))
    raise SystemExit(0)


def _insist():
    """A thread of the program's own, which nobody tells to stop, would keep the process for ever."""
    threading.Event().wait(_PATIENCE)
    say(f"the program did not end within {_PATIENCE} s after its last step, and is ended")
    os._exit(0)
