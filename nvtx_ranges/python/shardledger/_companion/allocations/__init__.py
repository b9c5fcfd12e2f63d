"""Where allocations are asked for: the torch bridge, or PyTorch's own memory history in its place."""
