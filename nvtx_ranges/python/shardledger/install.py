"""Puts every hook in place. Imported only when torch is: from here on modules import it freely."""

from . import backward, bridge, ddp, facts, forward, fsdp1, guard, handover, megatron, native, optimizers, outside


def install():
    if forward.is_installed():  # by the package as it was before somebody imported it anew: one of the two counts steps
        return
    guard.on = True
    facts.process()
    bridge.start()
    forward.install()
    backward.install()
    ddp.install()
    fsdp1.install()
    megatron.install()
    optimizers.install()
    handover.install()
    outside.install()
    native.source_state(b"companion", b"on", b"")
