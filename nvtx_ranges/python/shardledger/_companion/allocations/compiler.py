"""Compiles the torch bridge against the installed torch, once per machine and torch: the result is cached. So is the process
group of rehearsals.

The cache is $XDG_CACHE_HOME (or ~/.cache)/shardledger/bridge-<key>/, where the key covers everything that the binary
depends on. Ranks that start together wait for the first of them. What can't be done raises Unavailable, in words.
"""

import contextlib
import fcntl
import glob
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import sysconfig
import tempfile
import time

import torch

from ...kinds import source
from .built_ahead import abi

COMPILE_SECONDS = 180  # of one compilation; waiting ranks allow for two
# What is compiled, and then what it includes.
BRIDGE = ("torch_bridge.cpp", "torch_calls.h", "torch_sites.h", "torch_frames.h", "torch_uses.h", "shardledger.h",
          "ranges.h", "kinds.h", "kinds.def", "events.h", "events.def")
MIRROR = ("mirror_group.cpp", "mirror_work.h")


class Unavailable(Exception):
    """There is no bridge, and the text says why."""


def find_compiler():
    """$CXX as a command line, or the first of the usual names."""
    command = shlex.split(os.environ.get("CXX", ""))
    if command:
        return command
    for name in ("c++", "g++", "clang++"):
        path = shutil.which(name)
        if path:
            return [path]
    raise Unavailable("no C++ compiler (CXX, c++, g++, clang++)")


def _run(command, seconds):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, encoding="utf-8", errors="replace", env=_quiet_environment())
    except FileNotFoundError:
        raise Unavailable(f"no C++ compiler ({command[0]} not found)") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from None


def _quiet_environment():
    """Without the injections and preloads of the job: the compiler is not to be traced."""
    dropped = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "LD_PRELOAD")
    return {key: value for key, value in os.environ.items() if key not in dropped}


def _torch_root():
    return os.path.dirname(os.path.abspath(torch.__file__))


def find_cuda_include():
    """A directory with cuda_runtime_api.h: of the toolkit or of the wheels that torch depends on. None without one."""
    site = os.path.dirname(_torch_root())
    candidates = [os.path.join(os.environ[name], "include") for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    for packages in dict.fromkeys((site, sysconfig.get_paths()["purelib"])):
        candidates += sorted(glob.glob(os.path.join(packages, "nvidia", "cu[0-9]*", "include")), reverse=True)
        candidates.append(os.path.join(packages, "nvidia", "cuda_runtime", "include"))
    candidates += ["/usr/local/cuda/include", "/usr/include"]
    for directory in candidates:
        if os.path.exists(os.path.join(directory, "cuda_runtime_api.h")):
            return directory
    return None


def _has_library_headers(cuda_include):
    """Those that torch's own header of workspaces includes; wheels of older CUDA have them in a directory each."""
    names = ("cublas_v2.h", "cublasLt.h", "cusparse.h", "cusolverDn.h")
    return all(os.path.exists(os.path.join(cuda_include, name)) for name in names)


def compiling(sources, compiler, cuda_include, standard, root, abi):
    """The command so far; what to link with, and where to, follows. root: torch's directory, for its headers."""
    command = list(compiler) + [f"-std={standard}", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w"]
    command.append(f"-D_GLIBCXX_USE_CXX11_ABI={abi}")
    for directory in dict.fromkeys(os.path.dirname(source(name)) for name in sources):
        command.append(f"-I{directory}")
    include = os.path.join(root, "include")
    for directory in (include, os.path.join(include, "torch", "csrc", "api", "include")):
        command += ["-isystem", directory]
    if cuda_include:
        command += ["-DSHARDLEDGER_ALLOCATOR", "-isystem", cuda_include]
        if _has_library_headers(cuda_include):
            command.append("-DSHARDLEDGER_WORKSPACES")
    return command + [source(sources[0])]


def linking(libraries, cuda_include):
    return [f"-L{libraries}", "-lc10", "-ltorch_cpu"] + (["-lc10_cuda", "-ltorch_cuda"] if cuda_include else [])


def _command(sources, compiler, cuda_include, standard, output):
    libraries = os.path.join(_torch_root(), "lib")
    command = compiling(sources, compiler, cuda_include, standard, _torch_root(), abi())
    if not torch.version.debug:  # torch's own objects have members more without it
        command.append("-DNDEBUG")
    return command + ["-o", output, f"-Wl,-rpath,{libraries}"] + linking(libraries, cuda_include)


def _key(sources, compiler, cuda_include):
    version = _run(list(compiler) + ["--version"], 30).stdout
    digest = hashlib.sha256()
    parts = [torch.__version__, torch.version.cuda, torch.version.git_version, version, abi(), cuda_include,
             os.path.abspath(torch.__file__)]
    digest.update(repr(parts).encode())
    for name in sources:
        with open(source(name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:20]


def _private_directory(path):
    """Makes a directory that only we can write; refuses one that somebody else made or can write."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise Unavailable(f"{path} is not a directory that only this user can write")
    return path


def cache_directory(key):
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    try:
        os.makedirs(base, mode=0o700, exist_ok=True)
        _private_directory(os.path.join(base, "shardledger"))
        return _private_directory(os.path.join(base, "shardledger", f"bridge-{key}"))
    except OSError:  # a home that can't be written
        base = os.path.join(tempfile.gettempdir(), f"shardledger-{os.geteuid()}")
        try:
            _private_directory(base)
            return _private_directory(os.path.join(base, f"bridge-{key}"))
        except OSError as error:
            raise Unavailable(f"no cache directory: {error}") from None


@contextlib.contextmanager
def _locked(directory):
    """One compilation at a time. Where the file system has no locks, each rank compiles for itself."""
    descriptor = os.open(os.path.join(directory, "lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        deadline = time.monotonic() + 2 * COMPILE_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Unavailable("another process holds the bridge's lock") from None
                time.sleep(0.05)
            except OSError:
                break
        yield
    finally:
        os.close(descriptor)


def build(sources=BRIDGE):
    """Path of the compiled bridge, or of what else is named."""
    asked = time.time()
    compiler = find_compiler()
    cuda_include = find_cuda_include() if torch.version.cuda and sources is BRIDGE else None
    directory = cache_directory(_key(sources, compiler, cuda_include))
    result = os.path.join(directory, "bridge.so")
    failure = os.path.join(directory, "failure.txt")
    if os.path.exists(result):
        return result
    with _locked(directory):
        if os.path.exists(result):
            return result
        if os.path.exists(failure) and os.stat(failure).st_mtime >= asked:
            with open(failure, encoding="utf-8") as file:  # the rank before us failed; so would we
                raise Unavailable(file.read().strip())
        _compile(sources, compiler, cuda_include, result, failure)
    return result


def _compile(sources, compiler, cuda_include, result, failure):
    """Tries the newest torch's needs last: first as it is, then newer C++, then without the allocator's part."""
    temporary = f"{result}.{os.getpid()}"
    variants = [(cuda_include, "c++17"), (cuda_include, "c++20")] + ([(None, "c++17")] if cuda_include else [])
    first = None
    try:
        for include, standard in variants:
            done = _run(_command(sources, compiler, include, standard, temporary), COMPILE_SECONDS)
            if done.returncode == 0:
                os.replace(temporary, result)
                return
            first = first or done.stdout
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    lines = [line for line in first.splitlines() if "error" in line] or first.splitlines() or ["no output"]
    with open(failure, "w", encoding="utf-8") as file:
        file.write(f"the compiler failed: {lines[0][:400]}")
    raise Unavailable(f"the compiler failed: {lines[0][:400]}")
