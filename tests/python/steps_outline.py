"""A small model, and what was said of its steps, in one line."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x)


def loss(model):
    return model(torch.ones(1, 2)).sum()


def sgd(trained):
    return torch.optim.SGD(trained.parameters() if isinstance(trained, nn.Module) else [trained], lr=0.1)


def outline(calls):
    """Steps with the roots' forwards, backwards and optimizers between: "[0 fwd bwd opt1 ] eval [1 …", and | for a mark."""
    words = []
    texts = iter(calls.ranges())
    for call in calls.named("push", "pop", "start", "end", "mark"):
        text = next(texts) if call[0] != "mark" else call[2]
        if text == "end of the iteration":
            words.append("|")
        elif text.startswith("start step"):
            words.append("[" + text.split()[-1])
        elif text.startswith("end step"):
            words.append("]")
        elif text in ("+forward Model", "+eval Model", "+backward backward"):
            words.append({"+forward Model": "fwd", "+eval Model": "eval"}.get(text, "bwd"))
        elif text.startswith("+optimizer_step"):
            words.append(f"opt{call[3]}")
    return " ".join(words)
