"""Makes device meshes on the CPU: a named one, the same again, a slice of it, one without names, and one of ranks 0 and 1 alone."""

import os

import shardledger

shardledger.attach()

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method="file://" + os.environ["RENDEZVOUS"], rank=rank, world_size=world)

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "data parallel"))
DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("pp", "data parallel"))
inner = mesh["data parallel"]
DeviceMesh("cpu", list(range(world)))
DeviceMesh("cpu", [0, 1], mesh_dim_names=("first",))
model = torch.nn.Linear(1, 1)
model(torch.ones(1)).sum().backward()  # a process that does nothing leaves nothing
torch.optim.SGD(model.parameters()).step()
print(type(mesh).__name__, mesh.get_coordinate(), inner.get_local_rank())
dist.destroy_process_group()
