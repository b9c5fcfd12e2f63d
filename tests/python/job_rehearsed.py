"""Jobs for rehearse_test.py, by name: unmodified programs, each as a real rank would run it. Prints JSON, a line a fact."""

import datetime
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn


def tell(**facts):
    print(json.dumps(facts), flush=True)


def start(backend="gloo", **options):
    dist.init_process_group(backend, **options)
    return dist.get_rank(), dist.get_world_size()


def collectives():
    rank, world = start("cpu:gloo,cuda:nccl", timeout=datetime.timedelta(seconds=9))
    own = torch.tensor([1.0, 2.0])

    def reduced(op, value=own, **options):
        tensor = value.clone()
        dist.all_reduce(tensor, op, **options)
        return tensor.tolist()

    op = dist.ReduceOp
    tell(
        sum=reduced(op.SUM),
        max=reduced(op.MAX),
        min=reduced(op.MIN),
        product=reduced(op.PRODUCT),
        avg=reduced(op.AVG),
        xor=reduced(op.BXOR, torch.tensor([5])),
        either=reduced(op.BOR, torch.tensor([5])),
        counted=reduced(op.SUM, torch.ones(1)),
        true=reduced(op.SUM, torch.tensor([True])),
    )
    gathered = torch.empty(2 * world)
    dist.all_gather_into_tensor(gathered, own)
    parts = [torch.empty(2) for _ in range(world)]
    work = dist.all_gather(parts, own, async_op=True)
    work.wait()
    in_place = torch.zeros(2 * world)
    mine = in_place[2 * rank : 2 * rank + 2]
    mine.copy_(own)
    dist.all_gather_into_tensor(in_place, mine)
    scalars = torch.empty(world)
    dist.all_gather_into_tensor(scalars, torch.tensor(5.0))
    scattered, listed = torch.empty(2), torch.empty(2)
    dist.reduce_scatter_tensor(scattered, torch.arange(2.0 * world))
    dist.reduce_scatter(listed, list(torch.arange(2.0 * world).view(world, 2).clone()), op.AVG)
    tell(
        all_gather=gathered.tolist(),
        all_gather_list=[part.tolist() for part in parts],
        in_place=in_place.tolist(),
        scalars=scalars.tolist(),
        reduce_scatter=scattered.tolist(),
        reduce_scatter_list=listed.tolist(),
        completed=work.is_completed(),
        future=work.get_future().value()[0].tolist(),
    )
    broadcast, reduced_to = own.clone(), own.clone()
    dist.broadcast(broadcast, 0)
    dist.reduce(reduced_to, rank)
    to = [torch.empty(2) for _ in range(world)]
    dist.gather(own, to if rank == 0 else None, dst=0)
    given = torch.ones(2)
    dist.scatter(given, [torch.full((2,), float(i)) for i in range(world)] if rank == 0 else None, src=0)
    exchanged, lists = torch.empty(world), [torch.empty(1) for _ in range(world)]
    dist.all_to_all_single(exchanged, torch.arange(float(world)))
    dist.all_to_all(lists, [torch.tensor([float(i)]) for i in range(world)])
    uneven = torch.empty(3)
    dist.all_to_all_single(uneven, torch.tensor([7.0, 8.0]), [3] + [0] * (world - 1), [2] + [0] * (world - 1))
    tell(
        broadcast=broadcast.tolist(),
        reduce=reduced_to.tolist(),
        gather=[part.tolist() for part in to] if rank == 0 else None,
        scatter=given.tolist(),
        all_to_all=exchanged.tolist(),
        all_to_all_list=[part.item() for part in lists],
        uneven=uneven.tolist(),
    )
    objects, said = [None] * world, [{"rank": rank}]
    dist.all_gather_object(objects, {"rank": rank})
    dist.broadcast_object_list(said, src=0)
    handed = [None]
    dist.scatter_object_list(handed, [f"part {i}" for i in range(world)], src=0)
    tell(objects=objects, said=said, handed=handed)
    dist.barrier()
    other = (rank + 1) % world
    dist.send(torch.tensor([3, 4]), other)
    received, numbers = torch.ones(2), torch.zeros(2, dtype=torch.int64)
    dist.recv(received, other)
    dist.recv(numbers, other)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, own, other), dist.P2POp(dist.irecv, received, other)])
    for work in works:
        work.wait()
    tell(recv=received.tolist(), recv_numbers=numbers.tolist())
    evens = dist.new_group(list(range(0, world, 2)))
    split = dist.split_group(split_ranks=[list(range(world // 2)), list(range(world // 2, world))])
    tell(
        backend=dist.get_backend(),
        initialized=dist.is_initialized(),
        even=evens is not dist.GroupMember.NON_GROUP_MEMBER,
        split=dist.get_process_group_ranks(split),
        rank=rank,
        world=world,
        is_torchelastic=dist.is_torchelastic_launched(),
        environment={name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")},
    )
    functional(rank, world)
    dist.destroy_process_group()


def functional(rank, world):
    import torch.distributed._functional_collectives as functions
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("a", "b"))
    group = dist.group.WORLD

    def value(tensor):
        return functions.wait_tensor(tensor).tolist()

    whole = distribute_tensor(torch.arange(float(4 * world)).view(world, 4), mesh["b"], [Shard(0)])
    tell(
        coordinate=mesh.get_coordinate(),
        functional_sum=value(functions.all_reduce(torch.ones(2), "sum", group)),
        functional_gather=value(functions.all_gather_tensor(torch.ones(1), 0, mesh["b"])),
        functional_scatter=value(functions.reduce_scatter_tensor(torch.ones(world), "sum", 0, group)),
        coalesced=[value(t) for t in functions.all_reduce_coalesced([torch.ones(1), torch.ones(2)], "avg", group)],
        exchanged=value(functions.all_to_all_single(torch.arange(float(world)), None, None, group)),
        local=list(whole.to_local().shape),
        replicated=list(whole.redistribute(mesh["b"], [Replicate()]).shape),
        is_dtensor=isinstance(whole, DTensor),
    )


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def model():
    torch.manual_seed(1)
    return nn.Sequential(*(Block() for _ in range(2)))


def train(net, steps=2, **options):
    optimizer = torch.optim.AdamW(net.parameters(), **options)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 16)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return loss.item()


def sharded():
    """Every kind of parallelism, one after the other."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.nn.parallel import DistributedDataParallel

    rank, world = start(init_method="tcp://nowhere.example:1", rank=0, world_size=3)
    losses, shapes = {}, {}
    net = model()
    for block in net:
        fully_shard(block)
    losses["fsdp2"] = train(fully_shard(net))
    shapes["fsdp2"] = list(net[0].up.weight.to_local().shape)
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    net = model()
    for block in net:
        fully_shard(block, mesh=mesh)
    losses["hsdp"] = train(fully_shard(net, mesh=mesh))
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
    net = model()
    for block in net:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    losses["tp"] = train(fully_shard(net, mesh=mesh["dp"]), foreach=False)
    losses["ddp"] = train(DistributedDataParallel(model()))
    losses["fsdp1"] = train(FullyShardedDataParallel(model(), device_id=torch.device("cpu")))
    tell(rank=rank, world=world, losses=losses, shapes=shapes)


def training():
    """A loop without an end, with a clean-up of its own."""
    from torch.distributed.fsdp import fully_shard

    start()
    net = fully_shard(model())
    optimizer = torch.optim.AdamW(net.parameters())
    step = 0
    try:
        while True:
            optimizer.zero_grad()
            net(torch.randn(4, 16)).square().mean().backward()
            optimizer.step()
            tell(step=step)
            step += 1
    except Exception:
        tell(caught=True)
    finally:
        tell(clean=True)
        dist.destroy_process_group()


def store():
    own = dist.TCPStore("nowhere.example", 1, 99, False)
    rank, world = start(store=own, rank=1, world_size=4)
    tell(arrived=own.add("arrived", 1), rank=rank, world=world)
    own.set("here", "yes")
    tell(here=own.get("here").decode())
    own.get("there")


def places():
    """Every way to say where the other ranks are."""
    found = {}
    ways = {
        "nothing": {},
        "env": {"backend": "gloo", "init_method": "env://"},
        "file": {"backend": "gloo", "init_method": "file:///nowhere/there", "rank": 0, "world_size": 2},
        "tcp": {"backend": "nccl", "init_method": "tcp://nowhere.example:1", "rank": 0, "world_size": 2},
        "store": {"backend": "gloo", "store": dist.PrefixStore("a", dist.FileStore("/nowhere/there", 2)), "rank": 0, "world_size": 2},
        "options": {"backend": "nccl", "pg_options": dist.ProcessGroupNCCL.Options()},
        "rendezvous": dict(zip(("store", "rank", "world_size"), next(dist.rendezvous("env://"))), backend="cpu:gloo"),
    }
    for name, options in ways.items():
        dist.init_process_group(**options)
        backend = dist.group.WORLD._get_backend(torch.device("cuda" if options.get("backend") == "nccl" else "cpu"))
        found[name] = [dist.get_rank(), dist.get_world_size(), dist.get_backend(), backend.name()]
        is_right = isinstance(backend, dist.ProcessGroupNCCL if backend.name() == "nccl" else dist.ProcessGroupGloo)
        found[name].append(is_right)
        subgroup, _ = dist.new_subgroups(2, backend="gloo")
        counted = torch.ones(1)
        dist.all_reduce(counted, group=subgroup)
        dist.monitored_barrier(subgroup)
        found[name].append(counted.item())
        dist.destroy_process_group()
    tell(places=found)


def numbers():
    start()
    dist.recv(torch.zeros(3, dtype=torch.int64), 0)


def objects():
    rank, world = start()
    given = [None]
    dist.scatter_object_list(given, ["a"] * world if rank == 0 else None, src=0)


def unknown_backend():
    start("mpi")


def remote_calls():
    from torch.distributed import rpc

    rpc.init_rpc("worker")


def fails():
    start()
    raise ValueError("the job's own error")


def spawned(index):
    rank, world = start(init_method="tcp://127.0.0.1:1", rank=index, world_size=8)
    tell(index=index, rank=rank, world=world)


def spawns():
    torch.multiprocessing.spawn(spawned, nprocs=8)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
