"""shardledger.metrics(), and the trainers' callbacks over it, with the real libraries where they are installed."""

import ast
import contextlib
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import time

import pytest
from conftest import BUILD, PLUGIN

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
COMMAND = pathlib.Path(BUILD).resolve() / "bin" / "shardledger"
RUNS = ("fsdp2-2rank", "oom-forward-2rank", "fsdp2-2rank-recompute")
GIB = 2**30
FIGURES = {"memory/max_active(GiB)": 1.5, "memory/num_ooms": 0, "shardledger/step_peak/activation(GiB)": 0.25}

pytestmark = pytest.mark.skipif(not COMMAND.exists() or not os.path.exists(PLUGIN), reason="not built")


def test_without_the_plugin_there_are_no_figures():
    import shardledger

    assert shardledger.metrics() == shardledger.metrics(wait=True) == {}


def ask(run, statement, *values):
    with contextlib.closing(sqlite3.connect(run / "ledger.sqlite")) as ledger:
        return ledger.execute(statement, values).fetchall()


def test_the_runs_rules_decide_categories_for_one_of_its_processes_too(tmp_path):
    run = shutil.copytree(DATA / "fsdp2-2rank", tmp_path / "run")
    (tmp_path / "rules").write_text("module blocks.* category mine\n")
    subprocess.run([COMMAND, "ingest", run, "--rules", tmp_path / "rules"], check=True, capture_output=True)
    (process,) = run.glob("vm-713-*/")
    done = subprocess.run([COMMAND, "watch", process, "--once", "--json"], check=True, capture_output=True, text=True)
    last = json.loads(done.stdout)
    told = {row["category"]: row["peak_bytes"] for row in last["categories"] if row["peak_bytes"]}
    rank, step = last["ranks"][0]["rank"], last["ranks"][0]["last_step"]
    assert "mine" in told
    assert told == dict(ask(run, "SELECT category, bytes FROM category_at_peak WHERE rank = ? AND step = ? AND bytes > 0", rank, step))


@pytest.mark.parametrize("name", RUNS)
def test_the_ledgers_figures_are_those_of_the_last_step_that_ended(name, tmp_path):
    """Of each process by itself, as a job asks; the truth is SQL over the ledger of all."""
    from shardledger._companion.answers import figures
    from shardledger.kinds import KIND

    run = shutil.copytree(DATA / name, tmp_path / name)
    subprocess.run([COMMAND, "ingest", run], check=True, capture_output=True)
    for rank, pid, lost in ask(run, "SELECT rank, pid, events_lost FROM rank"):
        (process,) = run.glob(f"*-{pid}-*/")
        done = subprocess.run([COMMAND, "watch", process, "--once", "--json"], check=True, capture_output=True, text=True)
        told = figures._of_ledger(json.loads(done.stdout))
        step = told["shardledger/step"]
        assert ask(run, "SELECT max(step) FROM category_at_peak WHERE rank = ? AND step <= ?", rank, step) == [(step,)]
        (peak, phase), = ask(run, "SELECT peak_allocated_bytes, peak_phase FROM step_summary WHERE rank = ? AND step = ?", rank, step)
        assert told["shardledger/step_peak_allocated(GiB)"] == peak / GIB
        assert told["shardledger/step_peak_phase"] == KIND[phase]
        categories = dict(ask(run, "SELECT category, bytes FROM category_at_peak WHERE rank = ? AND step = ? AND bytes > 0", rank, step))
        assert {key.removeprefix("shardledger/step_peak/").removesuffix("(GiB)"): value * GIB
                for key, value in told.items() if "step_peak/" in key and value} == categories
        ((life,),) = ask(run, "SELECT peak_allocated_bytes FROM life_peak WHERE rank = ?", rank)
        assert told["shardledger/peak_allocated(GiB)"] == life / GIB
        assert told["shardledger/events_lost"] == lost
        assert all(isinstance(value, (int, float)) for value in told.values())


def said(output):
    words = (line.split(" ", 1) for line in output.out.splitlines())
    return {word: ast.literal_eval(value) for word, value in words}


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("end", [[], ["killed"]])
def test_a_job_gets_its_figures_while_it_runs_and_its_reader_ends_with_it(start_job, end):
    job = start_job("job_metrics.py", "3", *end, ranks=1)()
    (output,) = job.output
    assert output.status == (-9 if end else 0), output.err
    told = said(output)
    # On a busy machine its reader may have answered before the first call returns.
    first = {name: value for name, value in told["first"].items() if name.startswith("memory/")}
    assert first == {"memory/max_active(GiB)": 3.0, "memory/max_active(%)": 25.0, "memory/num_ooms": 1}
    assert told["took"] < 0.5  # seconds of the calling thread's processor time
    for figures in (told["later"], told["waited"]):
        assert figures["shardledger/step"] == 2 and figures["shardledger/events_lost"] == 0
        assert figures["shardledger/step_time(s)"] > 0
        assert "shardledger/peak_allocated(GiB)" not in figures  # a CPU has none, which is not 0
    assert told["forked"] == {} and told["alive"]
    deadline = time.monotonic() + 120
    while is_running(told["follower"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(told["follower"])


# ---- trainers ----

@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """As if this process had recorded a run: its figures are made up, the run and the report of it are real."""
    from shardledger._companion.answers import figures, follower

    run = shutil.copytree(DATA / "fsdp2-2rank", tmp_path / "run")
    (process,) = run.glob("vm-713-*/")
    monkeypatch.setattr(figures, "metrics", lambda wait=False: dict(FIGURES))
    monkeypatch.setattr(figures, "is_recorded", lambda: True)
    monkeypatch.setattr(follower, "own_directory", lambda: str(process))


@pytest.fixture
def trackers(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": tmp_path, "WANDB_DATA_DIR": tmp_path / "data",
                        "WANDB_CACHE_DIR": tmp_path / "cache", "WANDB_CONFIG_DIR": tmp_path / "config"}.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path


def scalars(directory):
    """{tag: [(step, value)]} of what TensorBoard finds, by its own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for events in {file.parent for file in directory.rglob("events.out.tfevents.*")}:
        log = EventAccumulator(str(events))
        log.Reload()
        for tag in log.Tags()["scalars"]:
            found[tag] = [(event.step, event.value) for event in log.Scalars(tag)]
    return found


def pages(directory):
    return [file for file in directory.rglob("*") if file.is_file() and b"<title>ShardLedger" in file.read_bytes()[:4096]]


def has_run(directory, name):
    """Whether the run that Weights & Biases wrote, to be sent later, has a figure of this name. Its file has it in the clear."""
    (log,) = directory.rglob("run-*.wandb")
    deadline = time.monotonic() + 120
    while name.encode() not in log.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.1)
    return name.encode() in log.read_bytes()


def train_with_huggingface(directory, report_to, callback):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x, labels=None):
            y = self.linear(x)
            return {"loss": ((y - labels) ** 2).mean(), "logits": y}

    rows = [{"x": torch.ones(4) * i, "labels": torch.ones(1)} for i in range(8)]
    arguments = transformers.TrainingArguments(
        output_dir=str(directory), max_steps=4, logging_steps=2, per_device_train_batch_size=2, save_strategy="no",
        report_to=report_to, use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False)
    trainer = transformers.Trainer(model=Model(), args=arguments, train_dataset=rows)
    callback(trainer)
    trainer.train()
    return trainer


def train_with_lightning(directory, loggers, callback):
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
    import torch

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            loss = self.linear(batch).pow(2).mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(max_steps=4, log_every_n_steps=2, accelerator="cpu", devices=1, logger=loggers, callbacks=[callback],
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                                default_root_dir=str(directory), accumulate_grad_batches=2)
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=2))


@pytest.mark.filterwarnings("ignore")
def test_huggingface_without_figures_logs_what_it_logs_anyway(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from shardledger.integrations.huggingface import ShardLedgerCallback

    tags = []
    for name, callback in (("with", ShardLedgerCallback.add_to), ("without", lambda trainer: None)):
        train_with_huggingface(tmp_path / name, ["tensorboard"], callback)
        tags.append({tag: [step for step, _ in points] for tag, points in scalars(tmp_path / name).items()})
    assert tags[0] == tags[1] and "train/loss" in tags[0]


@pytest.mark.filterwarnings("ignore")
def test_huggingface_logs_to_tensorboard_and_wandb_and_attaches_the_report(trackers, recorded):
    pytest.importorskip("transformers", reason="transformers is not installed")
    import wandb
    from shardledger.integrations.huggingface import ShardLedgerCallback

    train_with_huggingface(trackers, ["tensorboard", "wandb"], ShardLedgerCallback.add_to)
    wandb.finish()
    wandb.teardown()  # its own process writes the run's file, and is waited for
    found = scalars(trackers)
    assert [step for step, _ in found["train/loss"]] == [2, 4]
    assert [point for point in found["train/memory/max_active(GiB)"] if point[0] < 4] == [(2, 1.5)]
    assert found["train/shardledger/step_peak/activation(GiB)"][-1] == (4, 0.25)
    assert has_run(trackers, "train/memory/max_active(GiB)")
    assert len(pages(trackers / "data")) == 1


@pytest.mark.filterwarnings("ignore")
def test_huggingface_says_when_the_callback_comes_after_the_loggers(trackers, recorded, capsys, monkeypatch):
    pytest.importorskip("transformers", reason="transformers is not installed")
    from shardledger._companion import guard, options
    from shardledger.integrations.huggingface import ShardLedgerCallback

    monkeypatch.setattr(options, "verbosity", lambda: "info")
    guard._said.clear()
    train_with_huggingface(trackers, ["tensorboard"], lambda trainer: trainer.add_callback(ShardLedgerCallback()))
    assert "use ShardLedgerCallback.add_to(trainer)" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_lightning_without_figures_logs_what_it_logs_anyway(tmp_path):
    pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from lightning.pytorch.loggers import TensorBoardLogger
    from shardledger.integrations.lightning import ShardLedgerCallback

    train_with_lightning(tmp_path, TensorBoardLogger(tmp_path), ShardLedgerCallback())
    assert set(scalars(tmp_path)) == {"loss", "epoch"}


@pytest.mark.filterwarnings("ignore")
def test_lightning_logs_to_tensorboard_and_wandb_and_attaches_the_report(trackers, recorded):
    pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
    import wandb
    from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger
    from shardledger.integrations.lightning import ShardLedgerCallback

    loggers = [TensorBoardLogger(trackers / "board"), WandbLogger(save_dir=trackers, offline=True)]
    train_with_lightning(trackers, loggers, ShardLedgerCallback())
    wandb.finish()
    wandb.teardown()  # its own process writes the run's file, and is waited for
    found = scalars(trackers)
    steps = [step for step, _ in found["loss"]]
    assert len(steps) == 2
    assert found["memory/max_active(GiB)"] == [(step, 1.5) for step in steps]
    assert has_run(trackers, "memory/max_active(GiB)")
    assert len(pages(trackers / "data")) == 1


# ---- recipes ----

def recipes(language):
    page = pathlib.Path(__file__).resolve().parents[2] / "docs" / "integrations.md"
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)


def test_scripts_for_slurm_are_bash():
    assert len(recipes("bash")) == 3
    for script in recipes("bash"):
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert done.returncode == 0 and script.startswith("#!/bin/bash\n#SBATCH "), done.stderr


def test_the_manifest_is_a_service_and_a_job_that_finds_itself_by_it():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    service, job = yaml.safe_load_all(recipes("yaml")[0])
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert container["command"][:3] == ["shardledger", "run", "--"]
    assert f"{job['metadata']['name']}-0.{pod['subdomain']}:29500" in container["command"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_neither_library_is_imported_before_it_is_used():
    code = ("import shardledger, shardledger.integrations, sys; shardledger.metrics(); "
            "print(sorted({'torch', 'transformers', 'lightning', 'wandb'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=os.path.join(BUILD, "lib", "python")),
                          capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
