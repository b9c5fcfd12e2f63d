"""Puts every hook in place. Imported only when torch is: from here on modules import it freely."""

import threading

from . import facts, guard, native
from .allocations import bridge
from .hooks import backward, ddp, forward, fsdp1, handover, megatron, meshes, optimizers, outside
from .rehearsing import rehearsal


def install():
    if forward.is_installed():  # by the package as it was before somebody imported it anew: one of the two counts steps
        return
    guard.on = True
    facts.process()
    if rehearsal.read_plan() is not None:
        _rehearse()
    bridge.start()
    forward.install()
    backward.install()
    ddp.install()
    fsdp1.install()
    megatron.install()
    optimizers.install()
    handover.install()
    outside.install()
    meshes.install()
    native.source_state(b"companion", b"on", b"")


def _rehearse():
    from .rehearsing import limit, mirror

    threading.Thread(target=mirror.build_ahead, name="shardledger", daemon=True).start()  # beside the bridge's compilation
    rehearsal.tell_facts()
    limit.install()
