"""The reference model as a loop that other jobs drive step by step (overhead.py, torch_profiler.py)."""

import os

import fsdp2_train
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Training:
    """The model of fsdp2_train.py with its default options, on this process's GPU, or on the CPU."""

    def __init__(self, vocabulary=32000, width=1024, layers=8, batch=2, sequence=1024, device="cuda"):
        self.rank = int(os.environ["RANK"])
        self.vocabulary, self.shape, self.device = vocabulary, (batch, sequence), device
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
        torch.manual_seed(1234)
        with torch.device(device):
            model = fsdp2_train.Transformer(vocabulary, width, layers, recompute=False)
        self.model = model.to(torch.bfloat16)
        mesh = init_device_mesh(device, (dist.get_world_size(),))
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self):
        self.optimizer.zero_grad()
        tokens = torch.randint(0, self.vocabulary, self.shape, device=self.device)
        loss = F.cross_entropy(self.model(tokens).view(-1, self.vocabulary).float(), tokens.view(-1))
        loss.backward()
        self.optimizer.step()

    def close(self):
        dist.destroy_process_group()
