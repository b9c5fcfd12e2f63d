"""Programs of others that read the timelines we write: their counts and durations are the ledger's, in recorded runs of all kinds."""

import collections
import re

import pytest
import readers
from exported import SHOWN_PHASES, pytestmark, rows, written  # noqa: F401


def function_name(mangled):
    """Of a C++ function outside of namespaces, such as NCCL's kernels; else "computation"."""
    parts = re.match(r"_Z(\d+)(nccl.*)", mangled)
    return parts[2][: int(parts[1])] if parts else "computation"


# ---- Nsight Systems' schema ----

ASK_NSYS_TUI = """
from nsys_tui.overlap import classify_kernel
from nsys_tui.profile import Profile

def ask(path):
    profile = Profile(path)
    kernels = {gpu: profile.kernels(gpu) for gpu in profile.meta.devices}
    return {"gpus": {gpu: [info.name, info.sm_count, info.memory_bytes, info.kernel_count, info.streams]
                     for gpu, info in profile.meta.gpu_info.items()},
            "time": {gpu: sum(kernel["end"] - kernel["start"] for kernel in all) for gpu, all in kernels.items()},
            "nccl": {gpu: sum(classify_kernel(kernel["name"]).startswith("nccl") for kernel in all) for gpu, all in kernels.items()}}
"""


def test_nsys_tui_reads_it(written):
    """https://pypi.org/project/nsys-tui: GPUs, kernels, NVTX tree."""
    place = readers.install("nsys-tui==0.1.5", "--no-deps")
    exports = written("nsys", "run.sqlite")
    told = readers.ask(place, ASK_NSYS_TUI, exports)
    for run, (ledger, _) in exports.items():
        expected = {"gpus": {}, "time": {}, "nccl": {}}
        for rank, gpu, name, processors, size in rows(ledger, "SELECT rank, device, coalesce(device_name, ''),"
                                                              " coalesce(multiprocessors, 0), coalesce(device_bytes, 0) FROM rank"
                                                              " WHERE rank IN (SELECT rank FROM kernel)"):
            count, time, nccl = rows(ledger, "SELECT count(*), sum(end_ns - start_ns), sum(name LIKE '%nccl%') FROM kernel WHERE"
                                             " rank = ?", rank)[0]
            streams = [stream for stream, in rows(ledger, "SELECT DISTINCT stream FROM kernel WHERE rank = ? ORDER BY 1", rank)]
            expected["gpus"][str(gpu)] = [name, processors, size, count, streams]
            expected["time"][str(gpu)], expected["nccl"][str(gpu)] = time, nccl
        assert told[run] == expected, run
    assert sum(len(of_run["gpus"]) > 0 for of_run in told.values()) >= 5
    _, nsys = exports["fsdp2-2rank"]
    tree = readers.run(place, "-m", "nsys_tui", "tree", nsys, "--gpu", "0", "--trim", "0", "100")
    assert [name in tree for name in ("blocks.3", "FSDP::all_gather (blocks.0)")] == [True] * 2


ASK_NSYS_AI = """
import sqlite3
from nsys_ai.nvtx_tree import build_nvtx_tree, format_text
from nsys_ai.profile import Profile
from nsys_ai.skills.registry import run_skill

def ask(path):
    database = sqlite3.connect(path)
    database.row_factory = sqlite3.Row
    profile = Profile._from_conn(database)
    return {"devices": profile.meta.devices, "kernels": profile.meta.kernel_count,
            "missing": profile.schema.missing_required_columns(),
            "tree": format_text(build_nvtx_tree(profile, 0, (0, 10**12))) if profile.meta.devices else "",
            "top": run_skill("top_kernels", database, raw=True, limit=10000),
            "copies": run_skill("memory_transfers", database, raw=True),
            "mapped": run_skill("nvtx_kernel_map", database, raw=True, limit=100000)}
"""


def test_nsys_ai_reads_it(written):
    """https://pypi.org/project/nsys-ai: its skills on kernels, NVTX and copies. What it would import first is enough."""
    place = readers.install("nsys-ai==0.3.0", "duckdb==2.0.1", "--no-deps")
    exports = written("nsys", "run.sqlite")
    told = readers.ask(place, ASK_NSYS_AI, exports)
    for run, (ledger, _) in exports.items():
        of_run = told[run]
        assert of_run["missing"] == [], run
        assert of_run["devices"] == [gpu for gpu, in rows(ledger, "SELECT DISTINCT device FROM kernel ORDER BY 1")], run
        kernels, time = rows(ledger, "SELECT count(*), coalesce(sum(end_ns - start_ns), 0) FROM kernel")[0]
        assert of_run["kernels"] == sum(row["invocations"] for row in of_run["top"]) == kernels, run
        assert sum(row["total_ms"] for row in of_run["top"]) == pytest.approx(time / 1e6, abs=0.005 * len(of_run["top"])), run
        assert [[row["copyKind"], row["count"], row["total_mb"], row["total_ms"]] for row in of_run["copies"]] == [
            [kind, count, round(size / 1e6, 2), round(time / 1e6, 2)] for kind, count, size, time in rows(
                ledger, "SELECT kind, count(*), sum(bytes), sum(end_ns - start_ns) FROM memcpy GROUP BY 1 ORDER BY 4 DESC")], run
        assert len(of_run["mapped"]) == rows(ledger, "SELECT count(*) FROM (SELECT DISTINCT rank, stream, start_ns FROM collective"
                                                     " WHERE start_ns IS NOT NULL)")[0][0], run
    assert sum(len(of_run["mapped"]) > 0 for of_run in told.values()) >= 5
    assert re.search(r"step 0 .*\n.*Transformer .*\n.*FSDP::pre_forward .*\n.*FSDP::all_gather .*\n"
                     r".*nccl:_all_gather_base .*\n(.*ncclAllGather .*\n)?.*ncclDevKernel_AllGather", told["fsdp2-2rank"]["tree"])


# ---- torch.profiler's JSON ----

ASK_HTA = """
import logging, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis

def ask(path):
    traces = TraceAnalysis(trace_dir=path, include_last_profiler_step=True)
    ranks = sorted(traces.t.traces)
    kernels = traces.get_gpu_kernel_breakdown(visualize=False, duration_ratio=1.0, num_kernels=10**6)[1]
    launches = traces.get_cuda_kernel_launch_stats(visualize=False, ranks=ranks)
    return {"ranks": ranks, "kernels": kernels[["rank", "name", "kernel_type", "sum (us)"]].values.tolist(),
            "iterations": {rank: sorted({int(i) for i in table["iteration"].unique() if i >= 0})
                           for rank, table in traces.t.traces.items()},
            "overlap": dict(traces.get_comm_comp_overlap(visualize=False).fillna(0).values.tolist()),
            "launches": {rank: len(table) for rank, table in launches.items()}}
"""


def activities(ledger, rank):
    """Microseconds by HTA's kinds and the names that it gives them."""
    found = collections.Counter()
    for name, time in rows(ledger, "SELECT name, sum(end_ns - start_ns) / 1e3 FROM kernel WHERE rank = ? GROUP BY 1", rank):
        name = function_name(name)
        found["COMPUTATION" if name == "computation" else "COMMUNICATION", name] += time
    for kind, time in rows(ledger, "SELECT kind, sum(end_ns - start_ns) / 1e3 FROM memcpy WHERE rank = ? GROUP BY 1", rank):
        found["MEMORY", f"Memcpy {({1: 'HtoD', 2: 'DtoH', 8: 'DtoD'})[kind]}"] += time
    for time, in rows(ledger, "SELECT sum(end_ns - start_ns) / 1e3 FROM memset WHERE rank = ? HAVING count(*) > 0", rank):
        found["MEMORY", "Memset (Device)"] += time
    return {key: pytest.approx(time) for key, time in found.items()}


def test_hta_analyses_a_directory_of_them(written):
    """https://pypi.org/project/HolisticTraceAnalysis, with what it imports and no notebook."""
    place = readers.install("holistictraceanalysis==0.5.0", "pandas", "plotly", "narwhals", "packaging", "networkx",
                            "psutil", "python-dateutil", "pytz", "tzdata", "six", "pyyaml", "--no-deps")
    exports = written("kineto", "traces")
    told = readers.ask(place, ASK_HTA, exports, HTA_DISABLE_NS_ROUNDING="1")
    for run, (ledger, _) in exports.items():
        of_run = told[run]
        ranks = [rank for rank, in rows(ledger, "SELECT rank FROM rank ORDER BY 1")]
        assert of_run["ranks"] == ranks, run
        for rank in ranks:
            assert of_run["iterations"][str(rank)] == [step for step, in rows(
                ledger, f"SELECT DISTINCT step FROM {SHOWN_PHASES} WHERE kind = 'step' AND rank = ? ORDER BY 1", rank)], run
            times = collections.Counter()
            for of_rank, name, kind, time in of_run["kernels"]:
                if of_rank == rank:
                    times[kind, "computation" if kind == "COMPUTATION" else name.split("(n")[0]] += time
            assert times == activities(ledger, rank), (run, rank)
            assert of_run["launches"].get(str(rank), 0) == rows(ledger, "SELECT count(*) FROM (SELECT DISTINCT stream, start_ns FROM"
                                                                        " collective WHERE rank = ? AND start_ns IS NOT NULL)", rank)[0][0]
    ledger, _ = exports["fsdp2-2rank-kernels"]
    hidden = dict(rows(ledger, "SELECT rank, 100 * (1 - sum(exposed_share_ns) / sum(share_ns)) FROM collective_cost GROUP BY rank"))
    assert {int(float(rank)): share for rank, share in told["fsdp2-2rank-kernels"]["overlap"].items()} == pytest.approx(hidden, abs=0.01)
    assert hidden.keys() == {0, 1} and 0 < min(hidden.values())


ASK_TENSORBOARD = """
from torch_tb_profiler import io
from torch_tb_profiler.profiler.loader import RunLoader

def ask(path):
    run = RunLoader("run", path, io.Cache()).load()
    ranks = {name: profile for (name, _), profile in run.profiles.items() if name != "All"}
    together = run.get_profile("All", "default")
    return {
        "views": {name: [view.display_name for view in profile.views] for name, profile in ranks.items()},
        "devices": {name: profile.gpu_summary for name, profile in ranks.items()},
        "steps": {name: [row[0] for row in profile.overview["steps"]["rows"]] for name, profile in ranks.items()},
        "peaks": {name: profile.get_memory_curve(memory_metric="B")["metadata"]["peaks"] for name, profile in ranks.items()},
        "blocks": {name: {device: len(rows) for device, rows in profile.get_memory_events()["rows"].items()}
                   for name, profile in ranks.items()},
        "kernels": {name: sum(row[2] for row in profile.kernel_table["data"]["rows"]) for name, profile in ranks.items()
                    if profile.kernel_table},
        "together": together and {
            "steps": list(together.steps_to_wait["data"]),
            "operations": {name: table["rows"] for name, table in together.comm_ops["data"].items()}}}
"""


def test_tensorboards_plugin_shows_memory_kernels_and_all_ranks_collectives(written):
    """https://pypi.org/project/torch-tb-profiler: what its tabs are made of, without TensorBoard around it."""
    pytest.importorskip("pandas")
    place = readers.install("torch-tb-profiler==0.4.3", "absl-py==2.3.1", "--no-deps")
    exports = written("kineto", "traces")
    exports = {run: exports[run] for run in ("fsdp2-2rank", "fsdp2-2rank-kernels", "fsdp2-2rank-recompute",
                                             "oom-backward-2rank", "sites")}
    told = readers.ask(place, ASK_TENSORBOARD, exports)
    for run, (ledger, _) in exports.items():
        of_run = told[run]
        steps = [str(step) for step, in rows(ledger, f"SELECT DISTINCT step FROM {SHOWN_PHASES} WHERE kind = 'step' ORDER BY 1")]
        for rank, gpu in rows(ledger, "SELECT rank, device_name FROM rank"):
            name, device = f"rank{rank}", f"GPU{rank}"
            kernels, = rows(ledger, "SELECT iif(sum(name NOT LIKE '%nccl%') > 0, count(*), 0) FROM kernel WHERE rank = ?", rank)[0]
            # Its kernel tab is there where there are others than NCCL's.
            assert of_run["views"][name] == ["Overview", "Operator"] + ["Kernel"] * (kernels > 0) + ["Trace", "Memory"], (run, rank)
            assert not kernels or gpu in [row["value"] for row in of_run["devices"][name]], run
            assert of_run["steps"][name] == steps, run
            highest, = rows(ledger, "SELECT peak_allocated_bytes FROM life WHERE rank = ?", rank)[0]
            assert of_run["peaks"][name] == {device: f"Peak Memory Usage: {highest:.1f}B"}, run
            assert of_run["blocks"][name] == {device: rows(ledger, "SELECT count(*) FROM allocation WHERE rank = ?", rank)[0][0]}, run
            assert of_run["kernels"].get(name, 0) == kernels, run
            operations = {row[0]: row[1:] for row in of_run["together"]["operations"][name]} if of_run["together"] else {}
            for operation, word, times in (("AllGather", "nccl:all_gather", 1), ("ReduceScatter", "nccl:reduce_scatter", 2)):
                calls, size, took = rows(ledger, "SELECT count(*), sum(bytes), sum(end_ns - start_ns) / 1e3 FROM collective WHERE"
                                                 " rank = ? AND operation = ? AND start_ns IS NOT NULL", rank, operation)[0]
                if operations or calls:
                    assert operations[word][:2] == [calls, times * size], run  # inputs: of a reduce-scatter, all ranks' parts
                    assert operations[word][3] == pytest.approx(took, rel=0.001), run
        assert (of_run["together"] or {"steps": ["all"] + steps})["steps"] == ["all"] + steps, run
    assert sum(of_run["together"] is not None for of_run in told.values()) >= 4


ASK_GPU_IDLE = """
import glob, gzip, json, os
import analyzer
from trace_lanefix.core import fix_overlaps

def slices(path):
    return sorted([e["tid"], e["ts"], e["dur"]] for e in json.load(open(path))["traceEvents"] if e["ph"] == "X")

def ask(path):
    found = {}
    os.makedirs(path + "-plain")
    os.chdir(path + "-plain")
    for file in glob.glob(path + "/*.json.gz"):
        open("plain.json", "wb").write(gzip.open(file).read())
        fix_overlaps("plain.json", "fixed.json")
        try:
            measured = analyzer.measure("plain.json")
        except ValueError as error:
            measured = str(error)
        found[os.path.basename(file)[4:].split(".")[0]] = {"measured": measured, "same": slices("plain.json") == slices("fixed.json")}
    return found
"""


def test_gpu_idle_measures_the_ledgers_kernels_and_trace_lanefix_has_nothing_to_mend(written):
    """https://pypi.org/project/gpu-idle reads steps and kernels; https://pypi.org/project/trace-lanefix moves slices that cross."""
    place = readers.install("gpu-idle==0.1.0", "trace-lanefix==0.1.1", "--no-deps")
    exports = written("kineto", "traces")
    told = readers.ask(place, ASK_GPU_IDLE, exports)
    for run, (ledger, _) in exports.items():
        assert told[run].keys() == {str(rank) for rank, in rows(ledger, "SELECT rank FROM rank")}, run
        for rank, of_rank in told[run].items():
            assert of_rank["same"], (run, rank)
            steps = rows(ledger, "SELECT min(p.start_ns), max(coalesce(p.end_ns, r.end_ns)), count(*) FROM"
                                 f" {SHOWN_PHASES} p JOIN rank r USING (rank) WHERE kind = 'step' AND rank = ?", rank)[0]
            measured = of_rank["measured"]
            if not steps[2]:
                assert "no ProfilerStep annotations" in measured, run
                continue
            kernels = rows(ledger, "SELECT start_ns, end_ns FROM kernel WHERE rank = ? AND start_ns BETWEEN ? AND ?", rank, *steps[:2])
            assert (measured["steps"], measured["n_kernels"]) == (steps[2], len(kernels)), (run, rank)
            assert measured["window_ms"] == pytest.approx((steps[1] - steps[0]) / 1e6), (run, rank)
            assert measured["mean_kernel_us"] * len(kernels) == pytest.approx(sum(end - start for start, end in kernels) / 1e3), run
