"""Ranges: what wraps PyTorch so that modules, steps, optimizers and what runs between them show."""
