"""Every kind of NCCL call, alone and in groups, over three communicators: what tests/data/nccl-2rank was recorded from.

    shardledger run -- torchrun --nproc-per-node 2 nccl_calls.py        (NCCL_NVTX_DISABLE=1 for nccl-profiler-only-2rank)
"""

import torch
import torch.distributed as dist

ROUNDS = 5
ELEMENTS = 1 << 20


def calls(rank, ranks, other):
    x = torch.full((ELEMENTS,), float(rank), device="cuda")
    part = torch.empty_like(x)
    for _ in range(ROUNDS):
        dist.all_reduce(x)
        dist.all_reduce(x, op=dist.ReduceOp.MAX, group=other)
        dist.broadcast(x, 0)
        dist.reduce(x, 1)
        whole = torch.empty(ranks * ELEMENTS, device="cuda")
        dist.all_gather_into_tensor(whole, x)
        dist.reduce_scatter_tensor(part, whole)
        dist.all_to_all_single(torch.empty_like(whole), whole)
        ring = [dist.P2POp(dist.isend, x, (rank + 1) % ranks), dist.P2POp(dist.irecv, part, (rank - 1) % ranks)]
        for work in dist.batch_isend_irecv(ring):
            work.wait()
        if rank == 0:
            dist.send(x, 1)
        if rank == 1:
            dist.recv(x, 0)
        with dist._coalescing_manager(device=x.device, async_ops=True) as group:
            dist.all_reduce(x)
            dist.all_reduce(part)
        group.wait()


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    calls(dist.get_rank(), dist.get_world_size(), dist.new_group(list(range(dist.get_world_size()))))
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
