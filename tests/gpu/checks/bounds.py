"""The bounds of PyTorch's own FSDP2 memory tests, asked of the ledger in SQL.

PyTorch's test_fully_shard_memory.py bounds the memory of a job by four numbers of elements: S of the shards, U of all
parameters, B of the largest unit's parameters, N of those outside of units; plus 16 MB for what is small. Here they are
bytes, from the table `module`, and are held against the categories that they speak of, at the peak of each phase.
"""

from .harness import Result

SLACK_BYTES = 16 * 10**6  # PyTorch's own

SQL = """
WITH unit AS (
  SELECT root_id, max(param_bytes) AS largest, sum(param_bytes) AS together
  FROM module WHERE is_fsdp AND depth > 0 GROUP BY root_id
), size AS (
  SELECT r.rank, r.id AS root, r.param_bytes AS s, u.largest * k.world_size AS b,
    (r.param_bytes - u.together) * k.world_size AS n
  FROM module r JOIN rank k ON k.rank = r.rank JOIN unit u ON u.root_id = r.id
  WHERE r.depth = 0 AND r.is_fsdp
), held AS (
  SELECT p.*, p.sharded_param_bytes + p.unsharded_param_bytes + p.all_gather_bytes AS parameters,
    p.sharded_grad_bytes + p.unsharded_grad_bytes + p.reduce_scatter_bytes AS gradients
  FROM module_peaks p
)
SELECT h.rank, h.step, h.phase,
  CASE h.phase WHEN 'forward' THEN h.parameters
    WHEN 'backward' THEN h.parameters + h.gradients
    ELSE h.parameters + h.gradients + h.optstate_bytes END AS bytes,
  CASE h.phase WHEN 'forward' THEN s + 3 * b + n
    WHEN 'backward' THEN 2 * s + 4 * b + n
    ELSE 4 * s END AS bound
FROM held h JOIN size ON size.rank = h.rank
  AND (h.module_id = size.root OR (h.module_id IS NULL AND h.phase = 'optimizer_step'))
WHERE h.phase IN ('forward', 'backward', 'optimizer_step')
"""


def check_bounds(name, ledger):
    """Of a job with nested units that reshard after forward, and an optimizer with two states like Adam's."""
    rows = ledger.execute(SQL).fetchall()
    over = [row for row in rows if row[3] > row[4] + SLACK_BYTES]
    nearest = max(rows, key=lambda row: row[3] - row[4], default=None)
    figure = f"{len(rows) - len(over)} of {len(rows)} phases within PyTorch's bounds"
    if nearest:
        rank, step, phase, size, bound = nearest
        figure += f"; nearest: rank {rank} step {step} {phase} {size} B, bound {bound} B + {SLACK_BYTES} B"
    return Result(f"{name}: bounds", bool(rows) and not over, figure, {"over": over})
