"""Who holds the device: the lines add up to what the driver says, and next to nothing is unexplained."""

from .harness import MIB, Result

LIMIT = 0.01  # of the used bytes


def check_balance(name, ledger):
    samples = ledger.execute("SELECT rank, at_ns, used_bytes FROM device_sample").fetchall()
    worst, unbalanced, last = 0.0, 0, {}
    for rank, at_ns, used in samples:
        owners = dict(
            ledger.execute("SELECT owner, sum(bytes) FROM device_owner WHERE rank = ? AND at_ns = ? GROUP BY owner", (rank, at_ns))
        )
        unbalanced += sum(owners.values()) != used
        worst = max(worst, abs(owners.get("unexplained", 0)) / used if used else 1.0)
        last = owners
    unsampled = ledger.execute("SELECT count(*) FROM rank WHERE rank NOT IN (SELECT rank FROM device_sample)").fetchone()[0]
    parts = ("cuda_context", "gpu_code", "context_and_code", "nccl", "cublas", "other_processes")
    figure = f"{len(samples)} samples"
    figure += f", none of {unsampled} ranks" if unsampled else ""
    figure += f", {unbalanced} do not add up; at most {worst:.2%} unexplained; last: " + ", ".join(
        f"{part} {last[part] / MIB:.0f} MiB" for part in parts if part in last
    )
    return Result(f"{name}: device balance", bool(samples) and not unsampled and not unbalanced and worst <= LIMIT, figure)
