"""What tells the ledger about a job, in five parts: hooks on PyTorch, tags of tensors, allocations, rehearsals, and answers from
the record so far. Here is what all of them stand on. Nothing of it is for users to import."""
