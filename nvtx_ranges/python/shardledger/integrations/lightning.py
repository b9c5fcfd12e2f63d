"""For Lightning's Trainer: of the package lightning, or of pytorch_lightning where that is the one in use."""

import sys

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
    from pytorch_lightning.loggers import WandbLogger
else:
    from lightning.pytorch import Callback
    from lightning.pytorch.loggers import WandbLogger

from .. import metrics
from .._companion.answers import artifact


class ShardLedgerCallback(Callback):
    """Logs shardledger.metrics() to all of the trainer's loggers, every log_every_n_steps:

        trainer = Trainer(callbacks=[ShardLedgerCallback()], ...)

    At the end Weights & Biases gets the report as an artifact, if that is where the trainer logs; report=False: it does not.
    """

    def __init__(self, report=True):
        self.report = report
        self._step = 0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        step = trainer.global_step
        # Of batches whose gradients are accumulated, several have the same step.
        if not trainer.is_global_zero or not trainer.log_every_n_steps or step == self._step or step % trainer.log_every_n_steps:
            return
        self._step = step
        figures = metrics()  # not through self.log, which makes a tensor on the device of each
        for logger in trainer.loggers if figures else ():
            logger.log_metrics(figures, step=step - 1)  # as Lightning numbers what the step itself logs

    def on_fit_end(self, trainer, pl_module):
        if self.report and trainer.is_global_zero:
            for logger in trainer.loggers:
                if isinstance(logger, WandbLogger):
                    artifact.attach_to_wandb(logger.experiment)
