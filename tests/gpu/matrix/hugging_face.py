"""Hugging Face's own loops with FSDP2, unmodified, on a tiny model with random weights; nothing is downloaded.

    torchrun --nproc-per-node 2 hugging_face.py --jobs hf-trainer --truth PREFIX [--device cpu]

hf-trainer: transformers' Trainer, whose callbacks write the truth down. hf-accelerate: a loop with Accelerate.
"""

import argparse
import os
import sys
import tempfile
import traceback
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matrix.truth import Truth  # noqa: E402

STEPS = 3
VOCABULARY, LENGTH = 4096, 256


def tiny_model(small):
    from transformers import LlamaConfig, LlamaForCausalLM

    width = 64 if small else 512
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=LENGTH, use_cache=False,
    )
    return LlamaForCausalLM(config)


class RandomText(torch.utils.data.Dataset):
    def __len__(self):
        return 1024

    def __getitem__(self, index):
        tokens = torch.randint(0, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def require_fsdp2(model, device):
    from torch.distributed.fsdp import FSDPModule

    if device == "cuda" and not any(isinstance(module, FSDPModule) for module in model.modules()):
        raise RuntimeError("the trainer did not shard the model with FSDP2")


def hf_trainer(truth, device):
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Witness(TrainerCallback):
        def on_step_begin(self, *_, **__):
            truth.begin_step()

        def on_optimizer_step(self, *_, **__):
            truth.end_step()

    with tempfile.TemporaryDirectory(prefix="shardledger-hf-") as place:
        arguments = TrainingArguments(
            output_dir=place, max_steps=STEPS, per_device_train_batch_size=2, bf16=True, save_strategy="no",
            logging_steps=1, report_to="none", disable_tqdm=True, use_cpu=device == "cpu", fsdp=True,
            fsdp_config={
                "version": 2,
                "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
                "reshard_after_forward": True,
            },
        )
        trainer = Trainer(tiny_model(device == "cpu"), arguments, train_dataset=RandomText(), callbacks=[Witness()])
        trainer.train()
        require_fsdp2(trainer.model_wrapped, device)


def hf_accelerate(truth, device):
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
        reshard_after_forward=True,
    )
    accelerator = Accelerator(mixed_precision="bf16", fsdp_plugin=plugin, cpu=device == "cpu")
    model = tiny_model(device == "cpu")
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-4))
    loader = accelerator.prepare(torch.utils.data.DataLoader(RandomText(), batch_size=2))
    for step, batch in enumerate(loader):
        if step == STEPS:
            break
        truth.begin_step()
        optimizer.zero_grad()
        loss = model(**batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        truth.end_step()
    require_fsdp2(model, device)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--jobs", required=True, choices=("hf-trainer", "hf-accelerate"))
    p.add_argument("--truth", required=True, metavar="PREFIX")
    p.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = p.parse_args()
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    truth = Truth(options.truth, int(os.environ["RANK"]), options.device)
    truth.begin_job(options.jobs)
    try:
        {"hf-trainer": hf_trainer, "hf-accelerate": hf_accelerate}[options.jobs](truth, options.device)
        truth.say("done", 1)
    except ImportError as missing:
        truth.say("skipped", str(missing))
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        truth.say("error", f"{type(error).__name__}: {error}".partition("\n")[0][:300])
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
