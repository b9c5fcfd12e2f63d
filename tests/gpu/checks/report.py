"""The result table: on the terminal, as Markdown, as JSON."""

import dataclasses
import json
import platform
import subprocess


def machine():
    """What the figures hold for: GPUs, driver, PyTorch."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        gpus = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.SubprocessError):
        gpus = []
    import torch

    name, _, driver = gpus[0].partition(", ") if gpus else ("no GPU", "", "none")
    return (
        f"{len(gpus)} × {name}, driver {driver}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}, "
        f"Python {platform.python_version()}"
    )


def summary(results, seconds):
    counts = {word: sum(result.outcome == word for result in results) for word in ("pass", "FAIL", "not run")}
    return f"{counts['pass']} passed, {counts['FAIL']} failed, {counts['not run']} not run, in {seconds:.0f} s"


def line(figure):
    """A figure that holds a program's words may have lines of its own."""
    return " ".join(figure.split())


def text(results, on, seconds):
    width = max((len(result.name) for result in results), default=0)
    lines = [f"{result.name:<{width}}  {result.outcome:<7}  {line(result.figure)}" for result in results]
    return "\n".join([f"ShardLedger on {on}", *lines, summary(results, seconds)]) + "\n"


def markdown(results, on, seconds):
    rows = [f"| {r.name} | {r.outcome} | {line(r.figure).replace('|', '/')} | {r.seconds:.0f} |" for r in results]
    head = ["# GPU check", "", f"{on}.", "", summary(results, seconds) + ".", ""]
    return "\n".join([*head, "| check | result | figure | s |", "| --- | --- | --- | ---: |", *rows]) + "\n"


def write(out, results, on, seconds):
    """gpu-check.md and gpu-check.json in the directory out."""
    (out / "gpu-check.md").write_text(markdown(results, on, seconds))
    record = {"machine": on, "seconds": seconds, "results": [dataclasses.asdict(result) for result in results]}
    (out / "gpu-check.json").write_text(json.dumps(record, indent=1) + "\n")
