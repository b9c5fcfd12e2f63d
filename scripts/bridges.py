"""Compiles the torch bridge for many versions of PyTorch, with the headers of its wheels.

What links with PyTorch needs its libraries' names only: stubs stand for them, and a job has loaded the real ones before.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "build" / "release" / "lib" / "python"))

# The latest patch release of each version: {2.11: 2.11.0}.
RELEASES = {release.rpartition(".")[0]: release for release in (
    "2.4.1", "2.5.1", "2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")}
BOTH_ABIS = ("2.4", "2.5", "2.6")  # PyPI's have the older one, conda's and others' the newer
LIBRARIES = ("c10", "torch_cpu", "c10_cuda", "torch_cuda")
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}  # of manylinux_2_28, as scripts/wheel's

# What a job on the CPU does with the bridge; a GPU's allocator is started where there is one.
JOB = """
    import os, sys
    sys.path.insert(0, os.environ["SHARDLEDGER_PACKAGE"])
    os.environ["CXX"] = "/nowhere/c++"
    import ctypes, torch
    from shardledger._companion import native
    from shardledger._companion.allocations import built_ahead
    from shardledger._companion.signatures import bind
    path = built_ahead.find()
    assert path, torch.__version__
    c = dict(bind("torch_bridge.cpp", ctypes.PyDLL(path), ctypes.CDLL(path)))
    frames, sites, uses = {}, {}, []
    u32, text = ctypes.c_uint32, ctypes.c_char_p
    kept = (ctypes.PYFUNCTYPE(None, u32, u32, text, text, u32)(lambda id, caller, file, function, line: frames.update({id: (function, line)})),
            ctypes.PYFUNCTYPE(None, u32, u32, text, ctypes.c_int)(lambda id, frame, name, stack_of: sites.update({id: name})),
            ctypes.PYFUNCTYPE(None, ctypes.c_int, u32)(lambda device, site: None),
            ctypes.PYFUNCTYPE(None, ctypes.c_uint64, u32, u32)(lambda address, site, lasted: uses.append(address)),
            ctypes.PYFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(lambda on, asked: None))
    address = [ctypes.cast(function, ctypes.c_void_p) for function in kept]
    assert c["slb_start_sites"](*address[:3], b"/not/ours/") == 0, c["slb_error"]()
    assert c["slb_start_uses"](*address[3:], b"cpu") == 0, c["slb_error"]()
    assert c["slb_has_allocator"]() == 1
    assert c["slb_follow_sites"](2) == 0, c["slb_error"]()
    x = torch.ones(64, 64, requires_grad=True)
    (x @ x).sum().backward()
    assert c["slb_follow_sites"](0) == 0
    assert x.data_ptr() in uses, "the product did not use its factor"
    assert b"aten::mm" in sites.values() or any(b"mm" in name for name in sites.values()), sites
    pushed = []
    ranges = (ctypes.PYFUNCTYPE(None, u32, text, ctypes.c_uint64)(lambda *given: pushed.append(given)), ctypes.PYFUNCTYPE(None)(lambda: None),
              ctypes.PYFUNCTYPE(ctypes.c_uint64, u32, text, ctypes.c_uint64)(lambda *given: 2**63), ctypes.PYFUNCTYPE(None, ctypes.c_uint64)(lambda id: None))
    assert c["slb_start_calls"](*(ctypes.cast(function, ctypes.c_void_p) for function in ranges)) == 0, c["slb_error"]()
    call = {name: ctypes.cast(c["slb_python_function"](name.encode()), ctypes.py_object).value for name in native._RANGE_CALLS + native._BRIDGES_CALLS}
    call["push"](2, b"name", 2**64 - 1)
    assert pushed == [(2, b"name", 2**64 - 1)] and call["pop"]() is None and call["start"](1, b"step", 0) == 2**63
    print("loaded", os.path.basename(path), "torch", torch.__version__, "Python", sys.version.split()[0])
"""


def cache():
    return Path(os.environ["SHARDLEDGER_CACHE"])


def headers(version):
    """PyTorch's directory, as far as its headers go."""
    directory = cache() / "torch-headers" / RELEASES[version]
    if not directory.exists():
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-deps", "-d", scratch,
                            f"torch=={RELEASES[version]}"], check=True)
            wheel, = Path(scratch).glob("torch-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(Path(scratch) / "all", [name for name in archive.namelist() if name.startswith("torch/include/")])
            directory.parent.mkdir(parents=True, exist_ok=True)
            (Path(scratch) / "all" / "torch").rename(directory)
    return directory


def stubs(directory):
    for name in LIBRARIES:
        subprocess.run(["gcc", "-shared", "-nostdlib", "-o", directory / f"lib{name}.so", f"-Wl,-soname,lib{name}.so", "-x", "c", "/dev/null"], check=True)
    return directory


def newer_than_wheels_may_need(path):
    """Symbols and their versions that systems may lack on which the wheel runs."""
    shown = subprocess.run(["objdump", "-T", path], check=True, capture_output=True, text=True).stdout
    return [f"{symbol} ({kind}_{version})" for kind, version, symbol in re.findall(r"\((GLIBC|GLIBCXX|CXXABI)_([\d.]+)\)\s+(\S+)", shown)
            if tuple(map(int, version.split("."))) > NEWEST[kind]]


def build(version, abi, out, libraries):
    """The path, or the compiler's words."""
    from shardledger._companion.allocations import built_ahead, compiler

    cuda = compiler.find_cuda_include()
    path = out / built_ahead.name(version, abi)
    for standard in ("c++17", "c++20"):
        command = compiler.compiling(compiler.BRIDGE, ["g++"], cuda, standard, str(headers(version)), abi)
        command += ["-DNDEBUG", "-s", "-include", str(ROOT / "nvtx_ranges" / "old_glibc.h"), "-o", str(path), "-Wl,--no-as-needed",
                    *compiler.linking(str(libraries), cuda)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return path
    return next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:])


def build_all(versions, out):
    out.mkdir(parents=True, exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        libraries = stubs(Path(scratch))
        for version in versions:
            for abi in (0, 1) if version in BOTH_ABIS else (1,):
                result = build(version, abi, out, libraries)
                if isinstance(result, Path):
                    newer = newer_than_wheels_may_need(result)
                    result = f"needs {', '.join(newer)}: old_glibc.h has to stand for it" if newer else f"{result.stat().st_size} B"
                    failed += bool(newer)
                else:
                    failed += 1
                print(f"PyTorch {version}, ABI {abi}: {result}", flush=True)
    return failed


def job(python, package):
    """Runs JOB. package: the directory that has the package."""
    return subprocess.run([python, "-c", textwrap.dedent(JOB)], env={**os.environ, "SHARDLEDGER_PACKAGE": str(package)},
                          capture_output=True, text=True)


def check(versions, out):
    """Each in an environment of its own with the real PyTorch."""
    failed = 0
    for version in versions:
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            environment, package = Path(scratch) / "venv", Path(scratch) / "python"
            subprocess.run([sys.executable, "-m", "venv", environment], check=True)
            python = environment / "bin" / "python"
            subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "-q", f"torch=={RELEASES[version]}", "numpy<2"], check=True)
            shutil.copytree(ROOT / "build" / "release" / "lib" / "python", package)
            shutil.copytree(out, package / "shardledger" / "native" / "built", dirs_exist_ok=True)
            done = job(python, package)
            failed += done.returncode != 0
            print(f"{version}: " + (done.stdout.strip() if done.returncode == 0 else "failed: " + (done.stderr.splitlines() or [""])[-1]), flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(prog="scripts/bridges", description=__doc__.split("\n", 1)[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("versions", nargs="*", choices=[*RELEASES, []], metavar="VERSION")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_intermixed_args()
    versions = options.versions or list(RELEASES)
    return 1 if (check if options.check else build_all)(versions, options.directory.resolve()) else 0


if __name__ == "__main__":
    sys.exit(main())
