"""Callbacks of trainers over shardledger.metrics(): each library in a module of its own, which is what imports it.

    from shardledger.integrations.huggingface import ShardLedgerCallback    # transformers
    from shardledger.integrations.lightning import ShardLedgerCallback      # lightning, or pytorch_lightning
"""
