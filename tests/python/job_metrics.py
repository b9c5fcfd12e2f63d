"""A job of a few steps on the CPU that asks for its figures. Of torch.cuda only the figures are made up: the plugin, its log, and
the command that reads it are the real ones. job_metrics.py steps [killed]"""

import os
import signal
import sys
import time
import types

import torch

import shardledger
from shardledger._companion.answers import figures, follower

# In the place of PyTorch's figures, which a process without a GPU does not have.
cuda = types.SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 0,
                             memory_stats=lambda device: {"active_bytes.all.peak": 3 << 30, "num_ooms": 1},
                             get_device_properties=lambda device: types.SimpleNamespace(total_memory=12 << 30))

assert shardledger.attach()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()

assert shardledger.metrics() == {}, "without a GPU there is nothing to tell"
assert follower._process is None
figures.sys = types.SimpleNamespace(modules=dict(sys.modules, torch=types.SimpleNamespace(cuda=cuda)))
follower.INTERVAL = 1

began = time.thread_time()
print("first", shardledger.metrics())
print("took", time.thread_time() - began, flush=True)
deadline = time.monotonic() + 300
while time.monotonic() < deadline and shardledger.metrics().get("shardledger/step") != int(sys.argv[1]) - 1:
    time.sleep(0.05)
print("later", shardledger.metrics())
time.sleep(0.2)  # what happened in the last tenth of a second is not read yet
print("waited", shardledger.metrics(wait=True))
print("follower", follower._process.pid, flush=True)
if not os.fork():  # a worker has none, and ends none when it ends
    print("forked", shardledger.metrics(), flush=True)
    sys.exit()
os.wait()
print("alive", follower._process.poll() is None, flush=True)
if sys.argv[2:]:
    os.kill(os.getpid(), signal.SIGKILL)
