"""The truth matrix: small jobs of every shape, each with PyTorch's own figures, and their comparison with the ledger."""
