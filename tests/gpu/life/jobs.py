"""Jobs that are more than their steps: the peak, the leak or the owner lies in the setup, between steps, or there are none.

    python jobs.py NAME        one of JOBS, or of those of libraries.py; prints a JSON line of PyTorch's own figures at each boundary

Small models and few allocations, so that recordings are small. Without a GPU they run on the CPU and print no figures.
"""

import json
import os
import sys
import time

import torch
from torch import nn

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
WIDTH, LAYERS, STEPS = (1024, 4, 6) if CUDA else (16, 2, 3)
MIB = 1 << 20


def truth(what, **more):
    """PyTorch's figures since the line before."""
    row = {}
    if CUDA:
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        for quantity in ("requested", "allocated", "active", "reserved"):
            row[f"{quantity}_peak"] = stats[f"{quantity}_bytes.all.peak"]
            row[f"{quantity}_end"] = stats[f"{quantity}_bytes.all.current"]
        row["retries"] = stats["num_alloc_retries"]
        torch.cuda.reset_peak_memory_stats()
    print(json.dumps({"what": what, "ns": time.time_ns(), **row, **more}), flush=True)


class Block(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def model(layers=LAYERS, width=WIDTH):
    return nn.Sequential(*(Block(width) for _ in range(layers))).to(DEVICE)


def batch(rows=512, width=WIDTH):
    return torch.randn(rows, width, device=DEVICE)


def step(net, optimizer, x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def train(net, optimizer, steps=STEPS, after=None):
    for number in range(steps):
        step(net, optimizer, batch())
        truth("step", step=number)
        if after is not None:
            after(number)


def limit(spare):
    """So many bytes more than are reserved now, and no more."""
    if CUDA:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + spare) / total)


# ---- the peak is not in a step ----
def load_spike():
    """A whole state dict is uploaded beside the model, in the setup and again between steps 2 and 3."""
    net = model()
    stored = {name: tensor.detach().cpu() for name, tensor in net.state_dict().items()}

    def load():
        uploaded = {name: tensor.to(DEVICE) for name, tensor in stored.items()}
        cast = {name: tensor.bfloat16().float() for name, tensor in uploaded.items()}
        more = [torch.zeros(64 * MIB // 4, device=DEVICE) for _ in range(4)]
        net.load_state_dict(cast)
        del more

    load()
    truth("init")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for number in range(STEPS):
        if number == 3:
            load()
            truth("reload", after_step=2)
        step(net, optimizer, batch())
        truth("step", step=number)


def evaluation():
    """An evaluation piles up outputs, which are gone afterwards."""
    net = model()

    def evaluate(number):
        if number == 2:
            net.eval()
            with torch.no_grad():
                kept = [net(batch(8192)) for _ in range(8)]
            truth("evaluation", after_step=number, kept_bytes=sum(tensor.nbytes for tensor in kept))
            net.train()

    train(net, torch.optim.AdamW(net.parameters()), after=evaluate)


def evaluation_oom():
    """The same, until memory runs out."""
    net = model()
    train(net, torch.optim.AdamW(net.parameters()))
    limit(256 * MIB)
    kept = []
    try:
        with torch.no_grad():
            for _ in range(64):
                kept.append(net(batch(4096)))
    finally:
        truth("died", after_step=STEPS - 1, kept_bytes=sum(tensor.nbytes for tensor in kept))


def setup_oom():
    limit(200 * MIB)
    try:
        made = [model(layers=1, width=2048) for _ in range(16)]
        print(len(made))
    finally:
        truth("died")


def first_adamw_oom():
    """Memory runs out while the first step makes the optimizer's state."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    net(batch(64)).square().mean().backward()
    params = sum(p.nbytes for p in net.parameters())
    truth("before", param_bytes=params, gradient_bytes=sum(p.grad.nbytes for p in net.parameters()))
    limit(params // 2)
    try:
        optimizer.step()
    finally:
        made = sum(v.nbytes for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v) and v.device.type == DEVICE)
        truth("died", optstate_bytes=made)


# ---- leaks ----
def leak(kind):
    net, kept = model(), []
    optimizer = torch.optim.AdamW(net.parameters())
    for number in range(24):
        x = batch(256 + 8 * (number * 7 % 13)) if kind in ("varied", "none") else batch(256)
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward(retain_graph=kind == "varied")
        optimizer.step()
        truth("step", step=number)
        if kind == "varied":
            kept.append(loss)
        elif kind == "scalar":
            kept.append(loss.detach())
        elif kind == "rare" and number % 5 == 3:
            kept.append(torch.zeros(4 * MIB, device=DEVICE))
        del loss, x
        if kind == "evaluation" and number % 4 == 3:
            with torch.no_grad():
                kept.extend(net(batch(1024)) for _ in range(2))
            truth("evaluation", after_step=number)


# ---- owners ----
def offload():
    """A policy whose parameters and optimizer state go to the host after each iteration and come back before the next."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())

    def move(device):
        for p in net.parameters():
            p.data = p.data.to(device)
            p.grad = None
            for key, value in optimizer.state.get(p, {}).items():
                if torch.is_tensor(value) and value.dim():
                    optimizer.state[p][key] = value.to(device)

    for number in range(STEPS):
        move(DEVICE)
        step(net, optimizer, batch())
        params = sum(p.nbytes for p in net.parameters())
        truth("step", step=number, param_bytes=params, optstate_bytes=2 * params)
        move("cpu")
        truth("away", after_step=number)


def ema():
    net = model()
    average = {name: p.detach().clone() for name, p in net.named_parameters()}

    def update(number):
        with torch.no_grad():
            for name, p in net.named_parameters():
                average[name].lerp_(p, 0.01)
        truth("ema", after_step=number, copy_bytes=sum(t.nbytes for t in average.values()))

    train(net, torch.optim.AdamW(net.parameters()), after=update)


class _Product(torch.autograd.Function):  # keeps the parameter, not its data
    @staticmethod
    def forward(ctx, x, weight):
        ctx.x, ctx.weight = x, weight
        return torch.relu(x @ weight.data.t())

    @staticmethod
    def backward(ctx, grad):
        return grad @ ctx.weight.data, grad.t() @ ctx.x


class _Layer(nn.Linear):
    def forward(self, x):
        return _Product.apply(x, self.weight)


def sharded_by_hooks():
    """ZeRO-3 by hooks: parameters are empty between uses; masters and momentum belong to an engine that is no optimizer."""
    net = nn.Sequential(*(_Layer(WIDTH, WIDTH, False) for _ in range(LAYERS))).to(DEVICE, torch.bfloat16)
    masters = {p: p.data.float().flatten() for p in net.parameters()}
    momentum, gradients = {p: torch.zeros_like(m) for p, m in masters.items()}, {}

    def gather(layer):
        layer.weight.data = masters[layer.weight].bfloat16().view(WIDTH, WIDTH)

    def release(layer):
        layer.weight.data = torch.empty(0, dtype=torch.bfloat16, device=DEVICE)

    def reduce(p):
        gradients[p], p.grad, p.data = p.grad.float().flatten(), None, torch.empty(0, dtype=torch.bfloat16, device=DEVICE)

    for layer in net:
        release(layer)
        layer.register_forward_pre_hook(lambda layer, _: gather(layer))
        layer.register_forward_hook(lambda layer, *_: release(layer))
        layer.register_full_backward_pre_hook(lambda layer, _: gather(layer))
        layer.weight.register_post_accumulate_grad_hook(reduce)
    for number in range(STEPS):
        net(torch.randn(64, WIDTH, device=DEVICE, requires_grad=True).bfloat16()).square().mean().backward()
        with torch.no_grad():
            for p, master in masters.items():
                momentum[p].mul_(0.9).add_(gradients[p])
                master.sub_(momentum[p], alpha=1e-3)
        gradients.clear()
        truth("step", step=number, master_bytes=sum(m.nbytes for m in masters.values()))


# ---- steps ----
def gan():
    generator, critic = model(2), nn.Sequential(model(2), nn.Linear(WIDTH, 1).to(DEVICE))
    first, second = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
    for number in range(STEPS):
        first.zero_grad()
        (critic(batch(64)).mean() - critic(generator(batch(64)).detach()).mean()).backward()
        first.step()
        second.zero_grad()
        critic(generator(batch(64))).mean().backward()
        second.step()
        truth("step", step=number)


def closure():
    """Forward and backward inside of the optimizer's step, as all of Lightning's automatic optimization runs them."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    for number in range(STEPS):
        x = batch()

        def forward_and_backward():
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            return loss

        optimizer.step(forward_and_backward)
        truth("step", step=number)


# ---- no steps ----
def server():
    """Weights, a pool for keys and values, a CUDA graph, requests; no optimizer."""
    net = model().eval()
    pool = torch.zeros(256 * MIB // 4 if CUDA else 16, device=DEVICE)
    truth("loaded", pool_bytes=pool.nbytes)
    with torch.inference_mode():
        for rows in (16, 256, 2048, 64):
            net(batch(rows)).sum().item()
            truth("request")
        if CUDA:
            x, graph = batch(128), torch.cuda.CUDAGraph()
            net(x)
            with torch.cuda.graph(graph):
                net(x)
            graph.replay()
            truth("graph")


def server_leak():
    """Requests that leave something of varying size behind, in a job without steps."""
    net, kept = model().eval(), []
    truth("loaded")
    for number in range(14):
        with torch.inference_mode(), torch.profiler.record_function("request"):
            answer = net(batch((256, 64, 128)[number % 3]))
            kept.append(answer[: 8 + number % 5].clone())
            del answer
        truth("request", kept_bytes=sum(tensor.nbytes for tensor in kept))


def generation():
    """Tokens one after the other with a cache that grows, in ranges of the program's own."""
    net = model().eval()
    with torch.no_grad():
        for _ in range(3):
            with torch.profiler.record_function("generate"):
                cache = [batch(8)]
                for _ in range(24):
                    cache.append(net(torch.cat(cache)[-64:]))
            truth("generated", cache_bytes=sum(tensor.nbytes for tensor in cache))


# ---- the host's memory ----
def pinned():
    """Activations go to pinned host memory; from step 3 on they are kept there."""
    net, kept = model(), []
    optimizer = torch.optim.AdamW(net.parameters())

    def pack(tensor, keep):
        if not CUDA or tensor.nbytes < MIB or isinstance(tensor, nn.Parameter) or not tensor.is_contiguous():
            return tensor
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor)
        if keep:
            kept.append(host)
        return host

    for number in range(8):
        optimizer.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(lambda t, keep=number >= 3: pack(t, keep), lambda t: t.to(DEVICE)):
            loss = net(batch(2048).requires_grad_()).square().mean()
        loss.backward()
        optimizer.step()
        truth("step", step=number, kept_bytes=sum(t.nbytes for t in kept))


JOBS = {
    "load-spike": load_spike, "evaluation": evaluation, "evaluation-oom": evaluation_oom, "setup-oom": setup_oom,
    "first-adamw-oom": first_adamw_oom, "offload": offload, "ema": ema, "sharded-by-hooks": sharded_by_hooks, "gan": gan,
    "closure": closure, "server": server, "server-leak": server_leak, "generation": generation, "pinned": pinned,
    **{f"leak-{kind}": lambda kind=kind: leak(kind) for kind in ("varied", "evaluation", "rare", "scalar", "none")},
}  # fmt: skip

if __name__ == "__main__":
    sys.modules["jobs"] = sys.modules["__main__"]
    import libraries

    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "")
    torch.manual_seed(0)
    (JOBS | libraries.JOBS)[sys.argv[1]]()
