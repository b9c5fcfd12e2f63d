"""NCCL calls that no kernel record speaks of: captured in a CUDA graph, or run by the copy engines.

    torchrun --nproc-per-node 2 nccl_without_kernels.py --graph
    torchrun --nproc-per-node 2 nccl_without_kernels.py --copy-engine

--graph makes ROUNDS all-reduces, captures one, replays it REPLAYS times, and makes ROUNDS more. --copy-engine takes tensors of
symmetric memory and NCCL's zero-CTA policy (2.28 and later): all-gathers of them need no kernel. Each rank prints what
it made, as JSON; nothing here knows of any profiler.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist

ROUNDS, REPLAYS, ELEMENTS = 3, 4, 1 << 20


def captured(device):
    x = torch.ones(ELEMENTS, device=device)
    for _ in range(ROUNDS):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    for _ in range(ROUNDS):
        dist.all_reduce(x)
    return {"AllReduce": 2 * ROUNDS + 1, "captured": 1, "replays": REPLAYS}


def by_copy_engine(device):
    import torch.distributed._symmetric_memory as symmetric

    symmetric.set_backend("NCCL")
    dist.all_reduce(torch.ones(1, device=device))  # makes the communicator, in which memory is registered
    group = dist.group.WORLD.group_name
    part = symmetric.empty(ELEMENTS, device=device)
    whole = symmetric.empty(dist.get_world_size() * ELEMENTS, device=device)
    for tensor in (part, whole):
        tensor.fill_(1)
        symmetric.rendezvous(tensor, group=group)
    for _ in range(ROUNDS):
        dist.all_gather_into_tensor(whole, part)
    return {"AllReduce": 1, "AllGather": ROUNDS}


def main():
    p = argparse.ArgumentParser()
    how = p.add_mutually_exclusive_group(required=True)
    how.add_argument("--graph", action="store_true")
    how.add_argument("--copy-engine", action="store_true")
    a = p.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    options = dist.ProcessGroupNCCL.Options()
    if a.copy_engine:
        options.config.cta_policy = dist.ProcessGroupNCCL.NCCL_CTA_POLICY_ZERO
    dist.init_process_group("nccl", device_id=device, pg_options=options)
    made = (captured if a.graph else by_copy_engine)(device)
    torch.cuda.synchronize()
    print(json.dumps({"rank": dist.get_rank(), **made}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
