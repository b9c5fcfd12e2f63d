"""What every job has: sizes, models, the loop of steps with PyTorch's figures, and a last step under its memory tracker."""

import fsdp2_train
import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class TrackerRefused(Exception):
    """PyTorch's tracker can't follow this job. It broke off within a step, so nothing more is asked of the job."""


class Run:
    def __init__(self, truth, device, rank, world, with_tracker=True, small=False):
        self.truth, self.device, self.rank, self.world, self.with_tracker = truth, device, rank, world, with_tracker
        self.cuda = device == "cuda"
        self.steps, self.batch, self.layers = 3, 2, 4
        # Blocks of some MiB on a GPU, so that large and small pools, splits and caching all take part; tiny on a CPU.
        self.width, self.vocabulary, self.sequence = (512, 8000, 512) if self.cuda else (32, 64, 8)
        if small:  # for records of the repository: what matters is the shape
            self.steps, self.layers = 2, 2

    def transformer(self, dtype=torch.bfloat16, recompute=False):
        with torch.device(self.device):
            return fsdp2_train.Transformer(self.vocabulary, self.width, self.layers, recompute).to(dtype)

    def mesh(self, *shape, names=None):
        return init_device_mesh(self.device, shape or (self.world,), mesh_dim_names=names)

    def shard(self, model, **options):
        """FSDP2 on each block and on the whole."""
        options.setdefault("mesh", self.mesh())
        for block in model.blocks:
            fully_shard(block, **options)
        return fully_shard(model, **options)

    def tokens(self, sequence=None):
        return torch.randint(0, self.vocabulary, (self.batch, sequence or self.sequence), device=self.device)

    def loss(self, model, tokens=None):
        tokens = self.tokens() if tokens is None else tokens
        return F.cross_entropy(model(tokens).view(-1, self.vocabulary).float(), tokens.view(-1))

    def adamw(self, model, **options):
        return torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-4, **options)

    def train(self, model, optimizer=None, step=None, between=None, tracker="fsdp", tracked_step=None):
        """
        Some steps, then one under PyTorch's memory tracker.

        step: a function of `ended`, which it calls where its last work has been issued (default: the usual step).
        between: a function of the step's number, called after each step. tracker: fsdp, module, or None.
        tracked_step: in place of step under the tracker.
        """
        optimizer = optimizer or self.adamw(model)

        def usual_step(ended):
            optimizer.zero_grad()
            loss = self.loss(model)
            loss.backward()
            optimizer.step()
            ended()

        step = step or usual_step
        for number in range(self.steps):
            self.truth.begin_step()
            step(self.truth.end_step)
            if between:
                between(number)
        if tracker and self.with_tracker:
            self._track(model, optimizer, tracked_step or step, tracker)

    def _track(self, model, optimizer, step, kind):
        from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
        from torch.distributed._tools.mem_tracker import MemTracker

        self.truth.begin_step()
        try:
            if kind == "fsdp":
                tracker = FSDPMemTracker(model, optimizer)
            else:
                tracker = MemTracker()
                tracker.track_external(model, optimizer)
            with tracker:
                step(self.truth.end_step)
        except Exception as error:  # noqa: BLE001
            words = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
            raise TrackerRefused(f"{type(tracker).__name__} can't follow: {words}") from None
        self.truth.tracked(kind, tracker.memory_tracking)
