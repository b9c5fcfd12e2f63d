"""A training loop that keeps memory which nobody uses: what it keeps, on which line, is known.

    python idle_job.py TRUTH [loop|gpt|compiled|plain]      one GPU

Steps 0 to 3, and then two under idle_truth.Truth, whose findings go to TRUTH. At the end, with the program's own history over, an
allocation on a line of its own. plain: the loop without that, for recorders that stand on PyTorch's history themselves.
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent))
from idle_truth import Truth  # noqa: E402

ROWS, WIDTH, WORDS, STEPS = 512, 256, 2048, 4


class Keeper:
    """A loop with three things that are in nobody's way, but in memory."""

    def __init__(self):
        self.model = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WORDS)).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self):
        self.optimizer.zero_grad()
        scratch = torch.empty(ROWS, WORDS, device="cuda")  # early: not used before the optimizer has stepped
        rows = torch.randn(ROWS, WIDTH, device="cuda")
        self.outputs = self.model(rows)  # late: kept by the loop until the next step's are there
        logits = self.outputs.double()  # late: only its log_softmax is needed for backward
        loss = F.cross_entropy(logits, torch.zeros(ROWS, dtype=torch.long, device="cuda"))
        loss.backward()
        self.optimizer.step()
        scratch.fill_(1.0)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(b, t, c))


class GPT(nn.Module):
    """As public training scripts have it: the model returns logits and loss, and the loop keeps both."""

    def __init__(self, width=256, heads=4, blocks=3, words=8192):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(128, width)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm": nn.LayerNorm(width), "attention": Attention(width, heads), "norm2": nn.LayerNorm(width),
            "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)}) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, words, targets):
        x = self.tokens(words) + self.places(torch.arange(words.size(1), device=words.device))
        for block in self.blocks:
            x = x + block["attention"](block["norm"](x))
            x = x + block["down"](F.gelu(block["up"](block["norm2"](x))))
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class Public:
    def __init__(self):
        self.model = GPT().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
        self.scaler = torch.amp.GradScaler(enabled=False)
        self.data = torch.randint(0, 8192, (64, 129))

    def step(self):
        for _ in range(2):
            picked = self.data[torch.randint(0, 64, (8,))]
            words, targets = picked[:, :-1].contiguous().cuda(), picked[:, 1:].contiguous().cuda()
            with torch.amp.autocast("cuda", dtype=torch.bfloat16):
                logits, loss = self.model(words, targets)
                loss = loss / 2
            self.scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.logits = logits


class Compiled:
    """Between its operators a compiled region launches kernels of its own: what they use is hidden."""

    def __init__(self):
        self.inner = torch.compile(lambda x: (x.sin() + x.cos() * 2).relu())
        self.layer = nn.Linear(WIDTH, WIDTH).cuda()
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.1)

    def step(self):
        self.optimizer.zero_grad()
        kept = self.layer(torch.randn(ROWS, WIDTH, device="cuda"))
        hidden = self.inner(kept)
        loss = (hidden.double() * 2).square().mean()
        loss.backward()
        self.optimizer.step()


def main():
    torch.manual_seed(1)
    kind = sys.argv[2] if len(sys.argv) > 2 else "loop"
    training = {"loop": Keeper, "gpt": Public, "compiled": Compiled, "plain": Keeper}[kind]()
    for _ in range(STEPS):
        training.step()
    if kind == "plain":
        return
    with Truth() as truth:
        for _ in range(2):
            training.step()
            truth.step_ended()
    again = torch.zeros(7_654_321, dtype=torch.uint8, device="cuda")  # the program's own history is over
    lives, peak = truth.lives()
    said = {"kind": kind, "idle": truth.idle(), "again": [again.untyped_storage().nbytes(), "again"],
            "allocations": len(lives), "peak": peak}
    with open(sys.argv[1], "w") as file:
        json.dump(said, file)


if __name__ == "__main__":
    main()
