"""shardledger.metrics() on a GPU: its figures against PyTorch's own, and what a call costs. One GPU, half a minute.

    shardledger run -o DIR -- python tests/gpu/metrics.py       with lib/python of the same build on PYTHONPATH

Prints one JSON object; exits 1 where a figure is not exact.
"""

import json
import statistics
import sys
import time

import torch

import shardledger

STEPS, BLOCK = 400, 20  # BLOCK steps with a call in each, BLOCK without, in turn
GIB = 2**30


def main():
    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU()) for _ in range(8))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(512, 2048, device="cuda")
    peak, calls, blocks = 0, [], {True: [], False: []}
    for first in range(0, STEPS, BLOCK):
        asks = first // BLOCK % 2 == 0
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(BLOCK):
            torch.cuda.reset_peak_memory_stats()
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            peak = torch.cuda.max_memory_allocated()
            if asks:
                asked = time.perf_counter()
                shardledger.metrics()
                calls.append(time.perf_counter() - asked)
        torch.cuda.synchronize()
        blocks[asks].append((time.perf_counter() - began) / BLOCK)
    time.sleep(3)  # what is beside the job looks every two seconds
    latest, waited, own = shardledger.metrics(), shardledger.metrics(wait=True), torch.cuda.memory_stats()
    wrong = []
    for name, figures in (("latest", latest), ("waited", waited)):
        categories = sum(value for key, value in figures.items() if "step_peak/" in key)
        for key, told, truth in (
                ("step", figures.get("shardledger/step"), STEPS - 1),
                ("step_peak_allocated", figures.get("shardledger/step_peak_allocated(GiB)", 0) * GIB, peak),
                ("sum of categories", round(categories * GIB), peak),
                ("max_active", figures["memory/max_active(GiB)"] * GIB, own["active_bytes.all.peak"]),
                ("max_reserved", figures["memory/max_reserved(GiB)"] * GIB, own["reserved_bytes.all.peak"]),
                ("num_ooms", figures["memory/num_ooms"], own["num_ooms"]),
                ("events_lost", figures.get("shardledger/events_lost"), 0),
                ("steps_differed", figures.get("shardledger/steps_differed"), 0)):
            if told != truth:
                wrong.append(f"{name}: {key} is {told}, and PyTorch's {truth}")
    with_calls, without = (statistics.median(blocks[asks][1:]) for asks in (True, False))
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "wrong": wrong, "latest": latest,
                      "call_us_median": statistics.median(calls) * 1e6, "call_us_first": calls[0] * 1e6,
                      "step_ms_with_a_call_each": with_calls * 1e3, "step_ms_without": without * 1e3}, indent=1))
    return 1 if wrong or not latest else 0


if __name__ == "__main__":
    sys.exit(main())
