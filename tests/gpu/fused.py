"""The reference workload with PyTorch's fused AdamW, which it has no option for: one kernel, no foreach temporaries."""

import functools

import fsdp2_train
import torch

if __name__ == "__main__":
    torch.optim.AdamW = functools.partial(torch.optim.AdamW, fused=True)
    fsdp2_train.main()
