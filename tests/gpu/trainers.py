"""The trainers' callbacks on a GPU: what they log, against PyTorch's own figures of the same steps. One GPU, a minute each.

    shardledger run -o DIR -- python tests/gpu/trainers.py huggingface|lightning       with lib/python of the same build on PYTHONPATH

A small model of transformers' own (random weights, nothing is downloaded) is trained for STEPS steps. A second callback takes PyTorch's peak
of each step. Prints one JSON object; exits 1 where a logged figure is not exact, or none was logged.
"""

import argparse
import json
import sys
import tempfile
import time

import torch

STEPS, BATCH, TOKENS, VOCABULARY = 40, 4, 128, 4096
GIB = 2**30


class Peaks:
    """PyTorch's peak of each step, by the step's number from 0."""

    def __init__(self):
        self.of = {}

    def begin(self):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()

    def end(self, step):
        self.of[step] = torch.cuda.max_memory_allocated()
        time.sleep(0.15)  # what is beside the job looks every two seconds: it is to see more than one of the steps


class Compared:
    def __init__(self, peaks):
        self.peaks, self.wrong, self.compared, self.logs = peaks, [], set(), 0

    def log(self, figures):
        """At the instant at which a logger gets them."""
        if "memory/max_active(GiB)" not in figures:
            self.wrong.append(f"log {self.logs} lacks figures: {sorted(figures)}")
            return
        self.logs += 1
        own = torch.cuda.memory_stats()
        self._is("max_active", figures["memory/max_active(GiB)"] * GIB, own["active_bytes.all.peak"])
        self._is("max_reserved", figures["memory/max_reserved(GiB)"] * GIB, own["reserved_bytes.all.peak"])
        step = figures.get("shardledger/step")
        if step is None:  # nothing was read yet
            return
        self.compared.add(step)
        self._is(f"peak of step {step}", figures["shardledger/step_peak_allocated(GiB)"] * GIB, self.peaks.of.get(step))
        of_categories = sum(value for key, value in figures.items() if "step_peak/" in key)
        self._is(f"categories of step {step}", round(of_categories * GIB), self.peaks.of.get(step))
        for name in ("events_lost", "steps_differed"):
            self._is(name, figures[f"shardledger/{name}"], 0)

    def _is(self, what, told, truth):
        if told != truth:
            self.wrong.append(f"{what} is {told}, and PyTorch's {truth}")


def model_and_data():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=TOKENS, n_embd=256, n_layer=4, n_head=4))
    tokens = torch.randint(0, VOCABULARY, (STEPS * BATCH, TOKENS))
    return model, [{"input_ids": row, "labels": row} for row in tokens]


def huggingface(directory):
    import transformers
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from shardledger.integrations.huggingface import ShardLedgerCallback

    peaks = Peaks()
    compared = Compared(peaks)

    class Watches(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            peaks.begin()

        def on_step_end(self, args, state, control, **kwargs):
            peaks.end(state.global_step - 1)

        def on_log(self, args, state, control, logs=None, **kwargs):
            if "loss" in logs:
                compared.log(logs)

    model, data = model_and_data()
    trainer = Trainer(model, TrainingArguments(directory, max_steps=STEPS, per_device_train_batch_size=BATCH, logging_steps=1, save_strategy="no",
                                               report_to=[], disable_tqdm=True), train_dataset=data, callbacks=[Watches()])
    ShardLedgerCallback.add_to(trainer)
    trainer.train()
    return compared, transformers.__version__


def lightning(directory):
    import lightning as library
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.loggers import CSVLogger

    from shardledger.integrations.lightning import ShardLedgerCallback

    peaks = Peaks()
    compared = Compared(peaks)

    class Watches(Callback):
        def on_train_batch_start(self, *_):
            peaks.begin()

        def on_train_batch_end(self, trainer, *_):
            peaks.end(trainer.global_step - 1)

    class Logs(CSVLogger):
        def log_metrics(self, metrics, step=None):
            if any(name.startswith("memory/") for name in metrics):
                compared.log(metrics)
            super().log_metrics(metrics, step)

    class Trains(LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.data = model_and_data()

        def training_step(self, batch, _):
            return self.model(**batch).loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

        def train_dataloader(self):
            return torch.utils.data.DataLoader(self.data, batch_size=BATCH)

    Trainer(max_steps=STEPS, log_every_n_steps=1, callbacks=[Watches(), ShardLedgerCallback()], logger=Logs(directory), accelerator="gpu", devices=1,
            enable_checkpointing=False, enable_progress_bar=False, default_root_dir=directory).fit(Trains())
    return compared, library.__version__


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("trainer", choices=("huggingface", "lightning"))
    trainer = {"huggingface": huggingface, "lightning": lightning}[parser.parse_args().trainer]
    with tempfile.TemporaryDirectory() as directory:
        compared, version = trainer(directory)
    if compared.logs < STEPS - 1 or len(compared.compared) < 2:
        compared.wrong.append(f"{compared.logs} logs, {len(compared.compared)} steps")
    print(json.dumps({"library": version, "torch": torch.__version__, "device": torch.cuda.get_device_name(), "logs": compared.logs,
                      "steps_compared": len(compared.compared), "wrong": compared.wrong}, indent=1))
    return 1 if compared.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
