"""The export as torch.profiler's JSON: its own rules. export_readers_test.py has programs that read it."""

import collections
import gzip
import json
import re

import pytest
from exported import export, export_marks, pytestmark, rows  # noqa: F401

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    return export("fsdp2-2rank", tmp_path_factory.mktemp("kineto"), "kineto", "traces")


@pytest.fixture(scope="module", params=["fsdp2-2rank", "fsdp2-2rank-kernels", "fsdp2-2rank-recompute", "nccl-profiler-only-2rank"])
def traces(request, tmp_path_factory):
    ledger, directory = export(request.param, tmp_path_factory.mktemp("kineto"), "kineto", "traces")
    return ledger, [json.loads(gzip.decompress((directory / f"rank{rank}.pt.trace.json.gz").read_bytes()))
                    for rank in range(2)]


def events(trace, *categories):
    return [event for event in trace["traceEvents"] if event.get("cat") in categories]


def phases(trace):
    return [event for event in events(trace, "user_annotation") if event["ph"] in "Xb" and "Kind" in event["args"]]


def call_ranges(trace):
    return [event for event in events(trace, "user_annotation") if event["ph"] == "X" and "Kind" not in event["args"]]


def test_each_rank_has_a_file_that_says_whose_it_is(traces):
    ledger, files = traces
    for rank, trace in enumerate(files):
        info = trace["distributedInfo"]
        assert (info["backend"], info["rank"], info["world_size"]) == ("nccl", rank, 2)
        assert sorted(group["pg_size"] for group in info["pg_config"]) == [
            size for size, in rows(ledger, "SELECT nranks FROM communicator WHERE rank = ? ORDER BY 1", rank)]
        assert all(group["ranks"] == [0, 1] for group in info["pg_config"])
        gpus = rows(ledger, "SELECT device_name, device_bytes FROM rank ORDER BY device")  # both of one host
        assert [device["id"] for device in trace["deviceProperties"]] == [0, 1]  # readers take the one at a device's number
        assert [(device.get("name"), device.get("totalGlobalMem")) for device in trace["deviceProperties"]] == [
            (name or None, size) for name, size in gpus]


def test_every_event_has_what_its_kind_needs(traces):
    for trace in traces[1]:
        for event in trace["traceEvents"]:
            assert isinstance(event["name"], str) and isinstance(event["pid"], int) and isinstance(event["tid"], int)
            assert isinstance(event["ts"], (int, float)) and event["ts"] >= 0
            if event["ph"] == "X":
                assert event["dur"] >= 0
            if event.get("cat") in ON_DEVICE:
                assert event["args"]["stream"] == event["tid"] and event["args"]["device"] == event["pid"]
                assert isinstance(event["args"]["correlation"], int)


def test_threads_are_named_after_what_runs_on_them(training):
    ledger, directory = training
    for rank in range(2):
        trace = json.loads(gzip.decompress((directory / f"rank{rank}.pt.trace.json.gz").read_bytes()))
        (pid,), = rows(ledger, "SELECT pid FROM rank WHERE rank = ?", rank)
        names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name" and e["pid"] == pid}
        backward = {tid for tid, in rows(ledger, "SELECT DISTINCT tid FROM phase WHERE rank = ? AND kind = 'backward'", rank)}
        assert names[0] == "launch not recorded" and names[pid] == "main"
        assert {names[tid] for tid in backward - {pid}} == {"backward"}


def test_phases_are_annotations_and_steps_are_profiler_steps(traces):
    ledger, files = traces
    for rank, trace in enumerate(files):
        names = collections.Counter(e["name"] for e in phases(trace))
        told = collections.Counter(dict(rows(ledger, """
            SELECT iif(kind = 'step', 'ProfilerStep#' || step, name), count(*) FROM phase WHERE rank = ? GROUP BY 1""", rank)))
        assert names == told and len(told) > 1


def test_slices_of_a_thread_nest(traces):
    for trace in traces[1]:
        threads = collections.defaultdict(list)
        for event in sorted((e for e in events(trace, "user_annotation") if e["ph"] == "X"),
                            key=lambda e: (e["ts"], -e["dur"])):
            stack = threads[event["tid"]]
            while stack and stack[-1] <= event["ts"] + 1e-4:
                stack.pop()
            assert not stack or event["ts"] + event["dur"] <= stack[-1] + 1e-3
            stack.append(event["ts"] + event["dur"])


def test_memory_events_add_up(traces):
    ledger, files = traces
    for rank, trace in enumerate(files):
        total, highest = 0, 0
        memory = events(trace, "cpu_instant_event")
        assert len(memory) == rows(ledger, "SELECT count(*) + count(free_ns) FROM allocation WHERE rank = ?", rank)[0][0]
        for event in memory:
            args = event["args"]
            total += args["Bytes"]
            highest = max(highest, total)
            assert event["name"] == "[memory]" and args["Total Allocated"] == total <= args["Total Reserved"]
            assert args["Device Type"] == 1 and args["Device Id"] == rank
        peaks = [peak for peak, in rows(ledger, "SELECT peak_allocated_bytes FROM step WHERE rank = ?", rank)]
        assert highest == max(peaks, default=highest)


def test_marks_are_instants_of_their_thread(tmp_path):
    ledger, directory = export_marks(tmp_path, "kineto", "traces")
    trace = json.loads(gzip.decompress((directory / "rank0.pt.trace.json.gz").read_bytes()))
    marks = [e for e in events(trace, "cpu_instant_event") if e["name"] != "[memory]"]
    pid = rows(ledger, "SELECT pid FROM rank WHERE rank = 0")[0][0]
    assert all((e["ph"], e["s"], e["pid"], e["tid"]) == ("i", "t", pid, pid) for e in marks)
    zero = trace["baseTimeNanoseconds"]
    assert ([(e["name"], e["args"], round(e["ts"] * 1000) + zero) for e in marks]
            == [(name, {"domain": domain} | ({"value": value} if value else {}) | {"step": step, "module": "blocks.1"}, at)
                for name, domain, value, step, at in rows(ledger, "SELECT name, coalesce(domain, ''), value, step, at_ns FROM"
                                                                  " mark ORDER BY at_ns")])


def test_collectives_have_torchs_arguments(traces):
    ledger, files = traces
    for rank, trace in enumerate(files):
        calls = [e for e in events(trace, "cpu_op") if e["name"] == "record_param_comms"]
        assert len(calls) == rows(ledger, "SELECT count(*) FROM collective WHERE rank = ?", rank)[0][0] > 0
        kernels = [e for e in events(trace, "kernel") if "Collective name" in e["args"]]
        launches = {e["args"]["correlation"]: e for e in events(trace, "cuda_runtime")
                    if e["name"] != "launch not recorded"}
        ends = {e["id"]: e for e in events(trace, "ac2g") if e["ph"] == "f"}
        assert len(kernels) == len(launches) > 0
        for kernel in kernels:
            args, flow = kernel["args"], ends[kernel["args"]["correlation"]]
            assert (flow["pid"], flow["tid"], flow["ts"], flow["bp"]) == (kernel["pid"], kernel["tid"], kernel["ts"], "e")
            launch = launches[args["correlation"]]  # NCCL's profiler tells some calls a few microseconds after it
            assert launch["ts"] + launch["dur"] <= kernel["ts"] + 1e-3
            assert args["Group size"] == 2 and args["Process Group Ranks"] == "[0, 1]"
            inward, outward = args["In msg nelems"], args["Out msg nelems"]
            assert {"_allgather_base": outward == 2 * inward, "_reduce_scatter_base": inward == 2 * outward}.get(
                args["Collective name"], inward == outward)
            assert re.match("nccl", kernel["name"])


def test_each_collective_has_torchs_range_around_it(traces):
    """Whose External id its kernel has, and nothing else: readers join the two by it."""
    for trace in traces[1]:
        calls = {e["args"]["External id"]: e for e in events(trace, "cpu_op") if e["name"] == "record_param_comms"}
        ranges = {e["args"]["External id"]: e for e in call_ranges(trace)}
        assert calls.keys() == ranges.keys() and ranges
        kernels = {e["args"]["External id"]: e for e in events(trace, "kernel") if "External id" in e["args"]}
        assert kernels.keys() <= ranges.keys()
        for number, around in ranges.items():
            call = calls[number]["args"]
            assert (around["ts"], around["tid"]) == (calls[number]["ts"], calls[number]["tid"])
            assert around["args"]["Input Dims"] == [[call["In msg nelems"]]]
            same_calls_kernel = kernels.get(number, calls[number])["args"]
            assert same_calls_kernel["Collective name"] == call["Collective name"] and same_calls_kernel["Seq"] == call["Seq"]
        assert not {e["args"]["External id"] for e in phases(trace)} & ranges.keys()
        slices = collections.Counter(e["name"] for e in events(trace, "user_annotation") if e["ph"] == "X")
        for name, count in collections.Counter(e["name"] for e in ranges.values()).items():
            assert slices[name] == count  # torch's own range of a call is not a second slice of that name


def test_data_types_are_torchs_where_they_are_known(tmp_path):
    ledger, directory = export("nccl-profiler-only-2rank", tmp_path, "kineto", "traces")
    trace = json.loads(gzip.decompress((directory / "rank1.pt.trace.json.gz").read_bytes()))
    elements = {(e["args"]["Collective name"], e["args"]["dtype"]) for e in events(trace, "cpu_op")}
    assert ("allreduce", "Float") in elements and ("_allgather_base", "Byte") in elements


def test_what_nothing_is_known_to_have_launched_has_a_stand_in_at_its_start(traces):
    for trace in traces[1]:
        known = {e["args"]["correlation"] for e in events(trace, "cuda_runtime") if e["name"] != "launch not recorded"}
        others = [(e["args"]["correlation"], e["ts"]) for e in events(trace, *ON_DEVICE)
                  if e["args"]["correlation"] not in known | {0}]
        stand_ins = [e for e in events(trace, "cuda_runtime") if e["name"] == "launch not recorded"]
        assert sorted((e["args"]["correlation"], e["ts"]) for e in stand_ins) == sorted(others)
        assert all(e["tid"] == 0 for e in stand_ins)


def test_every_kernel_and_copy_has_an_arrow_from_its_launch(traces):
    """TraceLens builds its tree by them: what has none is no computation."""
    for trace in traces[1]:
        launches = {e["args"]["correlation"]: e for e in events(trace, "cuda_runtime")}
        starts = {e["id"]: e for e in events(trace, "ac2g") if e["ph"] == "s"}
        ends = {e["id"]: e for e in events(trace, "ac2g") if e["ph"] == "f"}
        activities = [e for e in events(trace, *ON_DEVICE) if e["args"]["correlation"]]
        assert len(activities) == len(starts) == len(ends) == len(launches)
        for event in activities:
            number = event["args"]["correlation"]
            start, end, launch = starts[number], ends[number], launches[number]
            assert (start["pid"], start["tid"], start["ts"]) == (launch["pid"], launch["tid"], launch["ts"])
            assert (end["pid"], end["tid"], end["ts"], end["bp"]) == (event["pid"], event["tid"], event["ts"], "e")


FRAMES = re.compile(r"(?:[^;]+;)+")  # innermost first


@pytest.fixture(scope="module")
def sited(tmp_path_factory):
    ledger, directory = export("sites", tmp_path_factory.mktemp("kineto"), "kineto", "traces")
    return ledger, json.loads(gzip.decompress((directory / "rank0.pt.trace.json.gz").read_bytes()))


def test_memory_events_have_the_call_stack_and_the_operator_of_the_ledger(sited):
    ledger, trace = sited
    told = {}
    for address, size, category, path, operator, of in rows(ledger, """
            SELECT address, bytes, category, full_path, operator_name, stack_of FROM allocation a JOIN site s ON s.id = a.site_id
            LEFT JOIN stack_path USING (frame_id)"""):
        frames = [re.fullmatch(r"(.*) (\S+?)(?::(\d+))?", frame).groups() for frame in path.split(" > ")] if path else []
        stack = "".join(f"{file}({line or 0}): {function};" for function, file, line in reversed(frames)) or None
        told.setdefault((address, size, category), set()).add((stack, operator, of if stack and of != "caller" else None))
    made = [event["args"] for event in events(trace, "cpu_instant_event") if event["args"]["Bytes"] > 0]
    assert len(made) == rows(ledger, "SELECT count(*) FROM allocation")[0][0]
    kinds = collections.Counter()
    for args in made:
        found = (args.get("Call stack"), args.get("Operator"), args.get("Call stack of"))
        assert found in told[args["Addr"], args["Bytes"], args["Category"]]
        kinds[found[0] is not None, found[1] is not None, found[2]] += 1
    assert {(True, True, None), (True, True, "forward"), (True, False, None), (False, True, None)} <= kinds.keys()
    for event in events(trace, "cpu_instant_event"):
        assert event["args"]["Bytes"] > 0 or "Call stack" not in event["args"]


def test_call_stacks_are_in_the_form_of_torchs_own(sited, tmp_path):
    """torch.profiler's with_stack and verbose: of memory that an operator makes on the CPU."""
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True, profile_memory=True, experimental_config=verbose) as made:
        kept = torch.nn.Linear(64, 64)(torch.ones(64, 64))
    made.export_chrome_trace(str(tmp_path / "own.json"))
    own = [event["args"] for event in events(json.loads((tmp_path / "own.json").read_text()), "cpu_instant_event")
           if event["name"] == "[memory]" and event["args"]["Bytes"] == kept.nbytes]
    ours = [event["args"] for event in events(sited[1], "cpu_instant_event") if "Call stack" in event["args"]]
    assert own and ours
    here = re.compile(r"(.*)\((\d+)\): ([^()]*)")

    def frames(stack):
        assert FRAMES.fullmatch(stack)
        return [here.fullmatch(frame) for frame in stack[:-1].split(";") if not frame.startswith(("<built-in", "nn.Module: "))]

    (linear,) = [frames(args["Call stack"]) for args in own if "): forward;" in args["Call stack"]]
    assert [frame[3] for frame in linear[:2]] == ["forward", "_call_impl"]
    for args in ours:
        assert all(frames(args["Call stack"])), args["Call stack"]
        if "): main;" in args["Call stack"]:
            assert frames(args["Call stack"])[-1].groups() == ("/tmp/job.py", "47", "<module>")
    assert set(own[0]) - {"finished", "Ev Idx"} <= set(ours[0])
