"""Who holds the device: the lines add up to what the driver says, and next to nothing is unexplained."""

from .harness import MIB, Result

LIMIT = 0.01  # of the used bytes


def check_balance(name, ledger):
    """NVML's samples may fall into a call that takes or gives memory; what they say is in check_sampling."""
    samples = ledger.execute("SELECT rank, at_ns, used_bytes FROM device_sample WHERE sampled_by = 'driver'").fetchall()
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


def check_sampling(name, ledger):
    """NVML's samples: every rank has some, and they agree with what is recorded, but for calls under way."""
    rows = ledger.execute(
        """SELECT s.rank, s.used_bytes, coalesce((SELECT sum(bytes) FROM device_owner AS o WHERE o.rank = s.rank
           AND o.at_ns = s.at_ns AND o.device = s.device AND owner = 'unexplained'), 0)
           FROM device_sample AS s WHERE sampled_by = 'nvml'"""
    ).fetchall()
    ranks = ledger.execute("SELECT count(*) FROM rank").fetchone()[0]
    shares = sorted(abs(unexplained) / max(used, 1) for _, used, unexplained in rows)
    sampled = len({rank for rank, *_ in rows})
    figure = f"{len(rows)} samples on {sampled} of {ranks} ranks"
    if shares:
        figure += f"; unexplained: {shares[len(shares) // 2]:.2%} in the middle, {shares[-1]:.2%} at most"
    return Result(f"{name}: sampled by NVML", bool(shares) and sampled == ranks and shares[len(shares) // 2] <= LIMIT, figure)
