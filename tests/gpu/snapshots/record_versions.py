"""Records record.py's jobs with many versions of PyTorch, on a machine without a GPU. Some minutes and 2 GB of download a version.

    python tests/gpu/snapshots/record_versions.py DIR [--torch 2.4.1]… [--only NAME]…

Of a version's wheel all is real but the device: its allocator, its history, its pickle, its statistics. stand_in.c takes the place of
CUDA's libraries, so kernels compute nothing. What the statistics said goes into DIR/torch-2.4.1.tar.xz with each job's snapshot, as
record.py writes them. In tests/data/snapshots/versions/ they are compared byte by byte.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
NEEDED = ["typing-extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock", "numpy"]
HEADERS = {"12": ["nvidia-cuda-runtime-cu12", "nvidia-cuda-nvcc-cu12"], "13": ["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88"]}
# fsdp2, pools and torch-pickler need NCCL, graphs and a symbol that not all versions have.
JOBS = ["plain", "stacks-all", "late", "ring", "expandable", "expandable-ring", "expandable-late", "streams", "sizes", "oom", "retried",
        "state", "no-history", "no-stacks", "skipped", "metadata", "annotations", "annotated-ring", "a-pool"]
SINCE = {"skipped": (2, 11), "metadata": (2, 10), "annotations": (2, 8), "annotated-ring": (2, 8), "a-pool": (2, 5)}


def releases():
    spec = importlib.util.spec_from_file_location("bridges", ROOT / "scripts" / "bridges.py")
    bridges = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bridges)
    return list(bridges.RELEASES.values())


def jobs_of(version):
    return [name for name in JOBS if tuple(map(int, version.split(".")[:2])) >= SINCE.get(name, ())]


def pip(place, *packages):
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-compile", "--no-cache-dir", "--target", place, *packages],
                   check=True)


def told(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def undefined(libraries):
    """Functions of CUDA's libraries that PyTorch's call."""
    names = set()
    for library in libraries:
        names |= set(re.findall(r" U ((?:__)?(?:cu|nccl|nv|cupti)\w+)", told("nm", "-D", "--undefined-only", library)))
        if library.name == "libc10_cuda.so":  # asks the driver for these by name, for all before it needs one
            names |= {name.decode() for name in re.findall(rb"\0((?:cu[A-Z]|nvml)\w+)(?=\0)", library.read_bytes())}
    return names


def stand_in(place, scratch):
    """The library, under the name of each that PyTorch's libraries want and this machine lacks; the directory, and what to preload."""
    libraries = sorted((place / "torch" / "lib").glob("lib*.so*"))
    wanted = {name for library in libraries for name in re.findall(r"\(NEEDED\).*\[(.*)\]", told("readelf", "-d", library))}
    missing = {name for name in wanted if re.match(r"lib(cu|nv|nccl)", name) and not (place / "torch" / "lib" / name).exists()}
    (major,) = {name.rpartition(".")[2] for name in missing if name.startswith("libcudart.so.")}
    pip(scratch / "headers", "--no-deps", *HEADERS[major])
    includes = {path.parent for name in ("cuda_runtime_api.h", "crt") for path in (scratch / "headers").rglob(name)}
    compiled = ["gcc", "-shared", "-fPIC", "-O1", "-w", *(f"-I{path}" for path in includes)]
    subprocess.run([*compiled, "-o", scratch / "part.so", HERE / "stand_in.c"], check=True)
    there = set(re.findall(r" T (\w+)", told("nm", "-D", "--defined-only", scratch / "part.so")))
    stops = scratch / "stops.c"
    stops.write_text("#include <stdio.h>\n#include <stdlib.h>\n" + "".join(
        f'void {name}(void) {{ fputs("stand-in: {name} is not there\\n", stderr); abort(); }}\n' for name in sorted(undefined(libraries) - there)))
    directory = scratch / "lib"
    directory.mkdir()
    subprocess.run([*compiled, "-o", directory / "libcuda.so.1", HERE / "stand_in.c", stops], check=True)
    for name in missing - {"libcuda.so.1"} | {"libnvidia-ml.so.1"}:
        (directory / name).symlink_to("libcuda.so.1")
    return directory


def record(version, jobs, out, scratch):
    place = scratch / "packages"
    pip(place, "--no-deps", f"torch=={version}", *NEEDED)
    directory = stand_in(place, scratch)
    environment = {**os.environ, "PYTHONPATH": str(place), "LD_LIBRARY_PATH": str(directory), "LD_PRELOAD": str(directory / "libcuda.so.1")}
    made, scripts, failed = scratch / "made", scratch / "jobs", []
    made.mkdir()
    scripts.mkdir()
    for name in ("record.py", "record_without_gpu.py"):
        shutil.copy(HERE / name, scripts)
    for name in jobs:
        if name.startswith("expandable"):
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        else:
            environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
        done = subprocess.run([sys.executable, scripts / "record_without_gpu.py", name, made], env=environment, capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("stand-in: ") or "Error" in line]
            failed.append(f"{name}: {done.returncode}: {' | '.join(said)}")
    with tarfile.open(out / f"torch-{version}.tar.xz", "w:xz", preset=9) as archive:
        for path in sorted(made.iterdir()):
            archive.add(path, path.name, filter=anonymous)
    print(f"{version}: {len(list(made.glob('*.json')))} jobs, {(out / f'torch-{version}.tar.xz').stat().st_size} bytes",
          *failed, sep="\n  ", flush=True)


def anonymous(member):
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--torch", action="append")
    parser.add_argument("--only", action="append", choices=JOBS)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    for version in arguments.torch or releases():
        scratch = Path(tempfile.gettempdir()) / f"torch-{version}"  # the paths in stacks begin with it
        scratch.mkdir()
        try:
            record(version, arguments.only or jobs_of(version), arguments.directory, scratch)
        finally:
            shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
