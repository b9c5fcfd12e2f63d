"""scripts/gpu-check: runs real jobs on real GPUs and compares their ledgers with what PyTorch itself says."""
