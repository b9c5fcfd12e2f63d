"""What installing puts in place: the wheel of scripts/wheel in a virtual environment that has nothing else, and CMake's."""

import contextlib
import email
import importlib.util
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import venv
import zipfile

import pytest
import readers
from checks import once
from conftest import BUILD, PLUGIN
from exported import COMMAND

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = ROOT / "tests" / "data" / "fsdp2-2rank"


def environment(**more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SHARDLEDGER_", "PYTHON"))}
    return dict(kept, **more)


def run(*command, status=(0,), cwd=None, **more):
    done = subprocess.run(command, env=environment(**more), cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=1800)
    assert done.returncode in status, done.stdout + done.stderr
    return done.stdout


def pip(python, *arguments):
    run(sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", *arguments)


def files(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_symlink() or not path.is_dir()}


@pytest.fixture(scope="module")
def bridges(tmp_path_factory):
    """What scripts/bridges makes for the PyTorch that is installed here."""
    import torch

    spec = importlib.util.spec_from_file_location("bridges", ROOT / "scripts" / "bridges.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    version = ".".join(torch.__version__.split(".")[:2])
    if version not in module.RELEASES or not torch.version.cuda:
        pytest.skip(f"a release has no bridge for PyTorch {torch.__version__}")
    out = tmp_path_factory.mktemp("bridges")
    module.headers = lambda version: pathlib.Path(torch.__file__).parent
    made = module.build(version, 1, out, module.stubs(tmp_path_factory.mktemp("stubs")))
    assert made == out / f"bridge-{version}-abi1.so", made
    assert not module.newer_than_wheels_may_need(made)
    return module, out


@pytest.fixture(scope="module")
def wheel(bridges):
    for name in ("scikit_build_core", "auditwheel", "ziglang"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed; scripts/setup --tests does it")

    def make(directory):
        (made,) = run(ROOT / "scripts" / "wheel", "--bridges", bridges[1], directory, SHARDLEDGER_TEST_ENV=sys.prefix).split()
        assert pathlib.Path(made).parent == directory

    (found,) = once.directory("wheel", make).glob("*.whl")
    return found


class Installed:
    def __init__(self, prefix):
        self.prefix = prefix
        self.command = prefix / "bin" / "shardledger"
        self.python = prefix / "bin" / "python"

    @property
    def package(self):
        (found,) = self.prefix.rglob("lib/python*/site-packages/shardledger")
        return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    prefix = tmp_path_factory.mktemp("environment")
    venv.create(prefix)
    found = Installed(prefix)
    pip(found.python, "install", "--no-index", wheel)
    return found


@pytest.fixture
def recorded(tmp_path):
    return shutil.copytree(RUN, tmp_path / "run")


def test_the_wheel_is_for_every_python_and_for_each_linux_that_torch_is_for(wheel):
    assert re.fullmatch(r"shardledger-[\d.]+-py3-none-manylinux_2_28_x86_64\.whl", wheel.name), wheel.name


def test_pypi_takes_the_wheel_and_renders_its_page(wheel):
    """As twine asks before it uploads: the metadata are in order, and docs/pypi.md is Markdown that PyPI's renderer takes."""
    place = readers.install("twine==7.0.0", "readme-renderer[md]")
    assert "PASSED" in readers.run(place, "-m", "twine", "check", "--strict", wheel)


def test_pypi_knows_the_classifiers_and_its_page_has_no_links_into_the_repository(wheel):
    """Twine asks for neither: PyPI refuses a classifier that it does not know, and would show such links as dead ones."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        about = email.message_from_bytes(archive.read(name))
    place = readers.install("trove-classifiers==2026.9.21.13")
    known = readers.run(place, "-c", "import trove_classifiers; print(*trove_classifiers.classifiers, sep='\\n')").splitlines()
    assert len(about.get_all("Classifier")) > 10 and not set(about.get_all("Classifier")) - set(known)
    page = about.get_payload()
    assert "pip install shardledger" in page and not re.findall(r"\]\((?!https?:)", page)


@pytest.mark.parametrize("remote, environment, said", [
    ("https://user:secret@code.example.org/team/ledger.git", {}, "Source, https://code.example.org/team/ledger"),
    ("git@code.example.org:team/ledger.git", {}, "Source, https://code.example.org/team/ledger"),
    ("ssh://git@code.example.org:2222/team/ledger/", {}, "Source, https://code.example.org/team/ledger"),
    ("http://code.example.org:8080/ledger", {}, "Source, http://code.example.org:8080/ledger"),
    ("/srv/git/ledger.git", {}, None), ("../ledger.d/x.y", {}, None), ("file:///srv/git.example.org/ledger", {}, None),
    ("git@build:ledger.git", {}, None), ("http://localhost/ledger", {}, None), ("https://10.1.2.3/ledger.git", {}, None),
    ("https://git.cluster.local/ledger", {}, None), (None, {}, None),
    ("/srv/git/ledger.git", {"SHARDLEDGER_PROJECT_URL": "https://me:pw@example.org/x"}, "Source, https://example.org/x"),
    ("https://code.example.org/ledger", {"SHARDLEDGER_PROJECT_URL": ""}, None)])
def test_the_wheel_names_where_its_source_came_from_if_that_looks_public(tmp_path, remote, environment, said):
    if importlib.util.find_spec("scikit_build_core") is None:
        pytest.skip("scikit_build_core is not installed; scripts/setup --tests does it")
    outer, source = tmp_path, tmp_path / "source"
    for name in ("pyproject.toml", "CMakeLists.txt", "LICENSE", "NOTICE", "docs/pypi.md", "scripts/project_urls.py"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    for place, address in ((outer, "https://code.example.org/around/it"), (source, remote)):
        if address:
            run("git", "init", "-q", cwd=place)
            run("git", "remote", "add", "origin", address, cwd=place)
    program = "from scikit_build_core.build import prepare_metadata_for_build_wheel as made; print(made('.'))"
    made = run(sys.executable, "-c", program, cwd=source, **environment).split()[-1]
    about = email.message_from_string((source / made / "METADATA").read_text())
    assert about.get_all("Project-URL") == (said and [said])


def test_without_git_the_wheel_names_no_source(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import project_urls

    assert project_urls.dynamic_metadata("urls") == {}


def defined(library):
    return {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}


def needed(library):
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", library)))


def test_the_wheels_libraries_offer_and_need_what_those_of_a_build_by_hand_do(installed):
    """They come from another compiler, which has an older glibc's parts to link with: libdl and libpthread, and no others."""
    if shutil.which("readelf") is None or not os.path.exists(PLUGIN):
        pytest.skip("no binutils, or not built")
    for name in ("libshardledger.so", "libshardledger_nvtx.so"):
        built, wheels = pathlib.Path(BUILD) / "lib" / name, installed.prefix / "lib" / name
        assert "InitializeInjection" in defined(wheels) or "nvtx" in name
        assert defined(wheels) == defined(built)
        assert needed(wheels) - needed(built) <= {"libdl.so.2", "libpthread.so.0"}
        assert needed(built) <= needed(wheels)
        flags = run("readelf", "-d", wheels)
        assert "nvtx" in name or ("SYMBOLIC" in flags and "NODELETE" in flags)
    versions = [tuple(map(int, version.split("."))) for file in installed.prefix.glob("lib/*.so")
                for version in re.findall(r"GLIBC_([\d.]+)", run("readelf", "-V", file))]
    assert max(versions) <= (2, 28)


def test_the_wheel_has_licences_and_what_compiles_the_bridge(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if re.search(r"dist-info/licenses/(LICENSE|NOTICE)$", name)]
    for name in ("torch_bridge.cpp", "torch_calls.h", "torch_sites.h", "torch_frames.h", "torch_uses.h", "shardledger.h", "ranges.h", "kinds.h", "kinds.def", "events.h", "events.def"):
        assert f"shardledger/native/{name}" in names


def test_the_wheel_brings_the_bridge_for_jobs_without_a_compiler(installed, bridges, tmp_path):
    """The real PyTorch loads it from the installed package, and it tells what an operator uses."""
    import torch

    version = ".".join(torch.__version__.split(".")[:2])
    done = bridges[0].job(sys.executable, installed.package / "elsewhere")
    assert done.returncode == 0 and f"loaded bridge-{version}-abi1.so" in done.stdout, done.stdout + done.stderr
    out = run(installed.command, "doctor", "--json", "--python", sys.executable, status=(0, 1), CXX="/nowhere/c++")
    found = {check["what"]: check for check in json.loads(out)}["torch bridge"]
    assert found["found"] == "built ahead for this version of PyTorch; no compiler is needed", found


def test_the_environment_has_one_copy_of_the_package_and_all_of_its_files_once(installed):
    assert [path.parent for path in installed.prefix.rglob("kinds.def")] == [installed.package / "native", installed.prefix / "include" / "shardledger"]
    for name in ("shardledger/__init__.py", "steps.py", "torch_bridge.cpp", "*-abi1.so"):
        assert [path.is_relative_to(installed.package) for path in installed.prefix.rglob(name)] == [True], name


def test_manual_and_completion_come_along(installed):
    assert ".TH SHARDLEDGER 1" in (installed.prefix / "share" / "man" / "man1" / "shardledger.1").read_text()
    assert "complete " in (installed.prefix / "share" / "bash-completion" / "completions" / "shardledger").read_text()


def test_the_command_finds_the_plugin_and_reads_runs(installed, recorded):
    out = run(installed.command, "doctor", "--json", "--python", installed.python, status=(0, 1))  # 1 without a GPU
    checks = {check["what"]: check for check in json.loads(out)}
    assert checks["plugin"]["found"] == str(installed.prefix / "lib" / "libshardledger.so")
    assert "2 ranks" in run(installed.command, "info", recorded)


def test_the_command_makes_the_same_ledger_as_that_of_a_build_by_hand(installed, recorded, tmp_path):
    if not COMMAND.exists():
        pytest.skip(f"{COMMAND} is not built")
    told = []
    for command in (COMMAND, installed.command):
        run(command, "ingest", recorded, "-o", tmp_path / "ledger.sqlite")
        with contextlib.closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as ledger:
            told.append([line for line in ledger.iterdump() if not line.startswith('INSERT INTO "meta"')])  # says when
    assert len(told[0]) > 1000 and told[0] == told[1]


def test_python_m_is_the_same_command(installed, recorded):
    command = run(installed.command, "peaks", recorded)
    assert "Peak" in command
    assert run(installed.python, "-m", "shardledger", "peaks", recorded) == command


def test_run_records_ranges_of_a_program_in_the_environment(installed, tmp_path):
    program = "import shardledger\nassert shardledger.attach()\nwith shardledger.range('sampling'): pass"
    run(installed.command, "run", "-o", tmp_path / "run", "--", installed.python, "-c", program)
    assert "sampling" in run(installed.command, "query", "SELECT name FROM phase", tmp_path / "run")


def test_a_torch_job_is_recorded_by_what_the_environment_has(installed, bridges, tmp_path):
    """A virtual environment with the wheel and a torch, which here is that of the tests."""
    for name in ("torch", "numpy"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"no {name}")
    (packages,) = installed.prefix.glob("lib/python*/site-packages")
    link = packages / "torch-of-the-tests.pth"
    link.write_text(str(pathlib.Path(importlib.util.find_spec("torch").origin).parents[1]))
    try:
        job = ROOT / "tests" / "python" / "job_plain.py"
        out = run(installed.command, "run", "-o", tmp_path / "run", "--", installed.python, job)
        assert "attached True" in out
        rows = run(installed.command, "query", "SELECT state, reason FROM source WHERE source = 'torch_bridge'", tmp_path / "run", "--csv")
        assert re.fullmatch(r"state,reason\non,built ahead: bridge-[\d.]+-abi1\.so\n", rows), rows
        rows = run(installed.command, "query", "SELECT count(*) FROM step", tmp_path / "run", "--csv")
        assert rows == "count(*)\n2\n"  # as many as the job has
    finally:
        link.unlink()


def test_jobs_of_other_environments_get_the_companion_and_nothing_else_of_this_one(installed, tmp_path):
    other = tmp_path / "other"
    venv.create(other)
    (installed.package.parent / "only_here.py").write_text("")
    program = ("import ctypes, os; ctypes.CDLL(os.environ['CUDA_INJECTION64_PATH']).InitializeInjection()\n"
               "for i in range(1000): pass\n"  # where Python runs what waits for it
               "import shardledger, importlib.util; print(shardledger.__file__, importlib.util.find_spec('only_here'))\n"
               "from shardledger import trackers\n")
    out = run(other / "bin" / "python", "-c", program, SHARDLEDGER_DIR=str(tmp_path / "log"),
              CUDA_INJECTION64_PATH=str(installed.prefix / "lib" / "libshardledger.so"))
    (installed.package.parent / "only_here.py").unlink()
    assert out.strip() == f"{installed.package / '__init__.py'} None"


def test_ranges_work_without_the_plugin(installed):
    program = "import shardledger, shardledger._companion.native as n; assert not shardledger.attach(); print(n.ranges._name)"
    assert run(installed.python, "-c", program).strip() == str(installed.prefix / "lib" / "libshardledger_nvtx.so")


def test_uninstalling_leaves_nothing(wheel, tmp_path, recorded):
    venv.create(tmp_path / "environment")
    python = tmp_path / "environment" / "bin" / "python"
    before = files(tmp_path / "environment")
    pip(python, "install", "--no-index", wheel)
    run(python, "-c", "import shardledger; shardledger.attach()")
    run(python, "-m", "shardledger", "peaks", recorded)
    assert "lib/libshardledger.so" in files(tmp_path / "environment")
    pip(python, "uninstall", "-y", "shardledger")
    assert files(tmp_path / "environment") == before
    assert not list((tmp_path / "environment").rglob("*shardledger*"))  # no empty directories either


def test_the_gpu_check_of_a_wheel_finds_it_whole_and_removed(wheel, tmp_path, recorded, monkeypatch):
    """scripts/gpu-check --wheel, with a recorded run in the place of its jobs."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "gpu"))
    from checks import harness, wheel as check

    run(COMMAND, "ingest", recorded)
    played = harness.Run("wheel-run", recorded, recorded / "truth", tmp_path / "log", 0, 1.0)
    monkeypatch.setattr(check, "check_jobs", lambda installed: [check.check_answers(installed, played)])
    results = list(check.check_wheel(harness.Harness(tmp_path, tmp_path, 2), wheel))
    assert [(result.name, result.passed) for result in results] == [
        ("wheel: installed", True), ("wheel: commands", True), ("wheel: uninstalled", True)], results


def test_cmake_installs_a_prefix_that_can_be_moved_and_removed(tmp_path, recorded):
    if not os.path.exists(os.path.join(BUILD, "bin", "shardledger")) or shutil.which("cmake") is None:
        pytest.skip("not built, or no CMake")
    run("cmake", "--install", BUILD, "--prefix", tmp_path / "shardledger", "--strip")
    (tmp_path / "shardledger").rename(tmp_path / "moved")
    command = tmp_path / "moved" / "bin" / "shardledger"
    assert str(tmp_path / "moved" / "lib" / "libshardledger.so") in run(command, "doctor", status=(0, 1))
    assert "2 ranks" in run(command, "info", recorded)
    for file in ("man/man1/shardledger.1", "bash-completion/completions/shardledger", "zsh/site-functions/_shardledger",
                 "fish/vendor_completions.d/shardledger.fish", "doc/shardledger/LICENSE"):
        assert (tmp_path / "moved" / "share" / file).stat().st_size > 1000
    package = str(tmp_path / "moved" / "lib" / "python")
    assert "2 ranks" in run(sys.executable, "-m", "shardledger", "info", recorded, PYTHONPATH=package)

    (tmp_path / "moved").rename(tmp_path / "shardledger")
    run("cmake", "-P", ROOT / "scripts" / "uninstall.cmake", cwd=BUILD)
    assert not list((tmp_path / "shardledger").rglob("*"))
