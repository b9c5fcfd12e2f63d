"""For transformers' Trainer, and those that are made of it (TRL's, sentence-transformers')."""

import sys

from transformers import TrainerCallback

from .. import metrics
from .._companion import guard
from .._companion.answers import artifact


class ShardLedgerCallback(TrainerCallback):
    """Puts shardledger.metrics() into whatever the trainer logs, so each of its loggers has them:

        trainer = Trainer(...)
        ShardLedgerCallback.add_to(trainer)

    At the end Weights & Biases gets the report as an artifact, if that is where the trainer logs; report=False: it does not.
    """

    def __init__(self, report=True):
        self.report = report
        self._is_first = False

    @classmethod
    def add_to(cls, trainer, report=True):
        """Before the loggers, which Trainer(callbacks=…) puts first: they are to see what this adds."""
        callback = cls(report)
        callback._is_first = True
        trainer.callback_handler.callbacks.insert(0, callback)
        return callback

    def on_train_begin(self, args, state, control, **kwargs):
        if not self._is_first:
            guard.say_once("huggingface", "nothing is logged by a ShardLedgerCallback that comes after the loggers; "
                           "use ShardLedgerCallback.add_to(trainer)")

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and logs is not None:
            logs.update(metrics())

    def on_train_end(self, args, state, control, **kwargs):
        wandb = sys.modules.get("wandb")
        if self.report and state.is_world_process_zero and wandb is not None and wandb.run is not None:
            artifact.attach_to_wandb(wandb.run)
