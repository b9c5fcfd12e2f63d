"""A rank that keeps memory on another one's GPU, and pinned host memory: both as PyTorch's own statistics say."""

import json

from .harness import MIB, Result, attempt, shardledger
from .truth import check_exact, read_truth
from .variants import keep


def check_devices(harness, record=None):
    run = harness.train("foreign-device", "foreign_device.py", ["--truth", "truth"])
    if record:
        yield keep(run, record / "foreign-device-2rank")
    text = shardledger("device", run.directory)
    (harness.out / "foreign-device.txt").write_text(text)
    yield flagged(text)
    with run.ledger() as ledger:
        yield attempt("foreign device: bytes", lambda: check_exact("foreign device", read_truth(run.truth), ledger))
        truths = read_devices(run.truth, harness.ranks)
        yield attempt("foreign device: bytes on each GPU", lambda: compared_devices(truths, ledger))
        yield attempt("pinned host memory", lambda: compared_host(truths, ledger))


def flagged(text):
    """Whether 'shardledger device' says that memory is on another rank's GPU."""
    lines = [line for line in text.splitlines() if line.startswith("On other ranks' GPUs")]
    return Result("foreign device: flagged", bool(lines), lines[0] if lines else "'shardledger device' does not say so")


def read_devices(prefix, ranks):
    """{rank: what PyTorch said at one instant of every GPU and of pinned host memory}."""
    return {rank: json.loads(prefix.with_name(f"{prefix.name}.devices.rank{rank}").read_text()) for rank in range(ranks)}


def alive(ledger, table, rank, at_ns, condition):
    """Bytes at an instant."""
    query = f"""SELECT coalesce(sum(bytes), 0) FROM {table} WHERE rank = ? AND {condition} AND alloc_ns <= ?
                AND (free_ns IS NULL OR free_ns > ?)"""
    return ledger.execute(query, (rank, at_ns, at_ns)).fetchone()[0]


def compared_devices(truths, ledger):
    """Every rank's bytes on every GPU, and the flag where the GPU is not its own."""
    told, wrong = [], []
    for rank, truth in truths.items():
        for device, statistics in enumerate(truth["devices"]):
            allocated = alive(ledger, "allocation", rank, truth["at_ns"], f"device = {device}")
            reserved = alive(ledger, "segment", rank, truth["at_ns"], f"device = {device} AND owner = 'pytorch'")
            if (allocated, reserved) != (statistics["allocated"], statistics["reserved"]):
                wrong.append(f"rank {rank} on GPU {device}: {allocated} and {reserved} B instead of {statistics}")
            if statistics["reserved"]:
                told.append(f"rank {rank} on GPU {device}: {reserved / MIB:.0f} MiB reserved")
    return Result("foreign device: bytes on each GPU", len(told) > len(truths) and not wrong, "; ".join(wrong or told))


def compared_host(truths, ledger):
    """What PyTorch's allocator of pinned memory owns at the end."""
    told = {rank: alive(ledger, "host_segment", rank, truth["at_ns"], "owner = 'pytorch'") for rank, truth in truths.items()}
    right = all(told[rank] == truth["host"]["allocated"] for rank, truth in truths.items())
    figures = ", ".join(f"rank {rank} {told[rank]} of {truth['host']['allocated']} B" for rank, truth in truths.items())
    return Result("pinned host memory", right and max(told.values()) > 0, figures)
