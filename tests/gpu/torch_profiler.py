"""A job that uses torch.profiler itself, twice: the user's profile must keep its CUDA events while the plugin is there.

    shardledger run -- torchrun --nproc-per-node 2 torch_profiler.py --out profiles.json

Each rank writes to <out>.rank<R>: for each profile the number of CUDA events it got, when it began and when it ended;
and the end of the job's last step.
"""

import argparse
import json
import time

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from training import Training


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True)
    a = p.parse_args()
    training = Training(vocabulary=4000, width=512, layers=4, sequence=512)

    def steps(count):
        for _ in range(count):
            training.step()
        torch.cuda.synchronize()

    steps(2)
    profiles = []
    for _ in range(2):
        start_ns = time.time_ns()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as user:
            steps(2)
        end_ns = time.time_ns()
        events = sum(event.device_type == DeviceType.CUDA for event in user.events())
        profiles.append({"cuda_events": events, "start_ns": start_ns, "end_ns": end_ns})
        steps(3)
    time.sleep(2)  # what the plugin collects about once a second
    steps(1)
    with open(f"{a.out}.rank{training.rank}", "w") as out:
        json.dump({"profiles": profiles, "end_ns": time.time_ns()}, out)
    training.close()


if __name__ == "__main__":
    main()
