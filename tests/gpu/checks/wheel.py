"""A wheel as a user installs it: beside the machine's PyTorch, attached in both ways, followed while it runs, and removed."""

import json
import subprocess
import sys
import sysconfig
import venv

from .harness import CheckFailed, Harness, OutOfTime, Result, attempt, broken, shardledger
from .reference import check_job
from .variants import SMALL
from .watch import STEPS, watched


class Installed(Harness):
    """Runs jobs with what is installed in an environment, and with nothing of the build."""

    def __init__(self, harness, environment):
        super().__init__(harness.out, harness.work, harness.ranks)
        self.environment = environment
        self.python = environment / "bin" / "python"
        self.command = environment / "bin" / "shardledger"
        self.plugin = environment / "lib" / "libshardledger.so"

    def torchrun(self):
        return [str(self.python), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks)]

    def pip(self, *arguments):
        command = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise CheckFailed(f"pip {arguments[0]}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")

    def says(self, program):
        done = subprocess.run([self.python, "-c", program], cwd=self.work, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise CheckFailed((done.stderr.strip().splitlines() or ["no message"])[-1])
        return done.stdout.strip()

    def files(self):
        """Files, and directories of ours; pip leaves empty ones such as share/man."""
        found = {path.relative_to(self.environment) for path in self.environment.rglob("*")
                 if path.is_symlink() or not path.is_dir() or "shardledger" in path.name}
        return {str(path) for path in found}


def environment_with_torch(place):
    """As `python -m venv --system-site-packages` makes it; what a virtual environment has itself is not of the system."""
    venv.create(place, system_site_packages=True, symlinks=True)
    if sys.prefix != sys.base_prefix:
        (packages,) = place.glob("lib/python*/site-packages")
        (packages / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place


def check_wheel(harness, wheel):
    installed = Installed(harness, environment_with_torch(harness.work / "wheel"))
    before = installed.files()
    installed.pip("install", "--no-deps", "--no-index", wheel)
    yield attempt("wheel: installed", lambda: check_installed(installed, wheel))
    try:
        yield from check_jobs(installed)
    except OutOfTime:
        raise
    except Exception as error:  # noqa: BLE001
        yield broken("wheel: jobs", error)
    installed.pip("uninstall", "-y", "shardledger")
    left, gone = sorted(installed.files() - before), sorted(before - installed.files())
    figure = f"{len(left)} files left, {len(gone)} others gone"
    yield Result("wheel: uninstalled", not left and not gone, ": ".join([figure, *filter(None, [", ".join((left + gone)[:3])])]))


def check_installed(installed, wheel):
    """The command, the plugin and the Python module are those of the wheel."""
    doctor = subprocess.run([installed.command, "doctor", "--json", "--python", installed.python], capture_output=True,
                            text=True, timeout=120)
    if doctor.returncode not in (0, 1):
        raise CheckFailed(doctor.stderr.strip())
    (installed.out / "wheel-doctor.txt").write_text(doctor.stdout)
    plugin = {check["what"]: check for check in json.loads(doctor.stdout)}["plugin"]["found"]
    module = installed.says("import shardledger; print(shardledger.__file__)")
    foreign = [path for path in (plugin, module) if not path.startswith(str(installed.environment))]
    return Result("wheel: installed", not foreign, f"{wheel.name}" + (f"; not its own: {', '.join(foreign)}" if foreign else ""))


def check_jobs(installed):
    options = [*SMALL, "--steps", STEPS, "--truth", "truth"]
    with installed.started("wheel-run", "fsdp2_train.py", options) as (process, run):
        yield attempt("wheel-run: watch", lambda: watched(installed, process, run))
        installed.end(process, run)
    if run.status:
        raise CheckFailed(f"the job exited {run.status}; see {run.log.name}")
    yield from check_job("wheel-run", run, installed.ranks, tracked=False)
    yield attempt("wheel: commands", lambda: check_answers(installed, run))
    run = installed.train("wheel-environment", options=[*SMALL, "--truth", "truth"], attach="environment")
    shardledger("ingest", run.directory, command=installed.command)
    yield from check_job("wheel-environment", run, installed.ranks, tracked=False)


def check_answers(installed, run):
    """The commands that people use first; what they print is kept for the reader."""
    page, silent = installed.out / "wheel-report.html", []
    for name, arguments in {"info": [], "peaks": [], "device": [], "nccl": [], "report": ["-o", page]}.items():
        text = shardledger(name, run.directory, *arguments, command=installed.command)
        (installed.out / f"wheel-{name}.txt").write_text(text)
        silent += [] if text.strip() else [name]
    peak = installed.says(f"import shardledger; print(shardledger.open({str(run.directory)!r})"
                          ".rows('SELECT max(peak_allocated_bytes) AS peak FROM step')[0]['peak'])")
    with run.ledger() as ledger:
        same = ledger.execute("SELECT max(peak_allocated_bytes) FROM step").fetchone()[0] == int(peak)
    passed = not silent and same and page.stat().st_size > 100_000
    return Result("wheel: commands", passed, f"5 answered, a page of {page.stat().st_size >> 10} KiB; Python: peak of {peak} B" +
                  (f"; silent: {', '.join(silent)}" if silent else ""))
