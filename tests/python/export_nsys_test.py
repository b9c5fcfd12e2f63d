"""The export in Nsight Systems' schema: nsys stats' summaries in SQL. export_readers_test.py has programs that read it."""

import collections
import contextlib
import pathlib
import sqlite3
import subprocess

import pytest
from conftest import BUILD
from exported import COMMAND, MARKS, export, export_marks, pytestmark, rows  # noqa: F401

RUNS = ["fsdp2-2rank", "fsdp2-2rank-recompute", "nccl-2rank"]


@pytest.fixture(scope="module", params=RUNS)
def exported(request, tmp_path_factory):
    return export(request.param, tmp_path_factory.mktemp("nsys"), "nsys", "run.sqlite")


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    return export("fsdp2-2rank", tmp_path_factory.mktemp("nsys"), "nsys", "run.sqlite")


def test_processes_are_ranks_and_ids_are_packed_as_nsys_packs_them(exported):
    ledger, nsys = exported
    pids = [pid for pid, in rows(ledger, "SELECT pid FROM rank ORDER BY rank")]
    assert [(g >> 24) & 0xFFFFFF for g, in rows(nsys, "SELECT globalPid FROM PROCESSES")] == pids
    assert rows(nsys, "SELECT count(*) FROM PROCESSES WHERE globalPid & 0xffffff <> 0 OR globalPid < 0") == [(0,)]
    threads = rows(nsys, "SELECT globalTid & 0xffffff FROM ThreadNames")
    assert {tid for tid, in rows(ledger, "SELECT tid FROM phase")} <= {tid for tid, in threads}
    assert rows(nsys, "SELECT d.pid, d.cudaId, g.name FROM TARGET_INFO_CUDA_DEVICE d JOIN TARGET_INFO_GPU g ON g.id ="
                      " d.gpuId ORDER BY d.cudaId") == rows(ledger, "SELECT pid, device, device_name FROM rank")


def test_every_enum_and_string_that_is_used_has_its_row(exported):
    """Readers join these with inner joins: what lacks a row vanishes."""
    _, nsys = exported
    for table, column, names in [("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind", "ENUM_CUDA_MEMCPY_OPER"),
                                 ("CUPTI_ACTIVITY_KIND_MEMCPY", "srcKind", "ENUM_CUDA_MEM_KIND"),
                                 ("CUPTI_ACTIVITY_KIND_MEMCPY", "dstKind", "ENUM_CUDA_MEM_KIND"),
                                 ("CUPTI_ACTIVITY_KIND_MEMSET", "memKind", "ENUM_CUDA_MEM_KIND"),
                                 ("CUPTI_ACTIVITY_KIND_KERNEL", "launchType", "ENUM_CUDA_KERNEL_LAUNCH_TYPE"),
                                 ("CUPTI_ACTIVITY_KIND_KERNEL", "shortName", "StringIds"),
                                 ("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName", "StringIds"),
                                 ("CUPTI_ACTIVITY_KIND_KERNEL", "mangledName", "StringIds"),
                                 ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId", "StringIds"),
                                 ("CUPTI_ACTIVITY_KIND_RUNTIME", "eventClass", "ENUM_NSYS_EVENT_CLASS"),
                                 ("CUDA_GPU_MEMORY_USAGE_EVENTS", "memKind", "ENUM_CUDA_MEM_KIND"),
                                 ("CUDA_GPU_MEMORY_USAGE_EVENTS", "memoryOperationType", "ENUM_CUDA_DEV_MEM_EVENT_OPER"),
                                 ("NVTX_EVENTS", "eventType", "ENUM_NSYS_EVENT_TYPE"),
                                 ("DIAGNOSTIC_EVENT", "severity", "ENUM_DIAGNOSTIC_SEVERITY_LEVEL"),
                                 ("DIAGNOSTIC_EVENT", "source", "ENUM_DIAGNOSTIC_SOURCE_TYPE"),
                                 ("ThreadNames", "nameId", "StringIds")]:
        assert rows(nsys, f"SELECT DISTINCT {column} FROM {table} WHERE {column} NOT IN (SELECT id FROM {names})") == []
        assert rows(nsys, f"SELECT count(*) FROM {table}") != [(0,)]


def test_nvtx_sum(exported):
    """Instances and total time of each range, as nsys stats' nvtx_sum computes them."""
    ledger, nsys = exported
    summed = rows(nsys, """
        WITH domains AS (SELECT DISTINCT domainId, globalTid >> 24 AS process, text FROM NVTX_EVENTS WHERE eventType = 75)
        SELECT d.text || ':' || coalesce(e.text, s.value), count(*), sum(e."end" - e.start)
        FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id = e.textId
        JOIN domains d ON d.domainId = e.domainId AND d.process = e.globalTid >> 24
        WHERE e.eventType IN (59, 60) AND e."end" IS NOT NULL AND d.text = 'shardledger' GROUP BY 1 ORDER BY 1""")
    told = rows(ledger, "SELECT 'shardledger:' || name, count(*), sum(coalesce(p.end_ns, r.end_ns) - p.start_ns)"
                        " FROM phase p JOIN rank r USING (rank) GROUP BY 1 ORDER BY 1")
    assert summed == told and len(told) > 2


def test_push_pop_ranges_nest_and_have_one_thread(exported):
    _, nsys = exported
    assert rows(nsys, "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 59 AND (endGlobalTid IS NOT NULL OR"
                      " \"end\" IS NULL)") == [(0,)]
    threads = collections.defaultdict(list)
    for thread, start, end in rows(nsys, "SELECT globalTid, start, \"end\" FROM NVTX_EVENTS WHERE eventType = 59 AND"
                                         " domainId = 1 ORDER BY start, \"end\" DESC"):
        stack = threads[thread]
        while stack and stack[-1] <= start:
            stack.pop()
        assert not stack or end <= stack[-1]
        stack.append(end)


def projection():
    """Kernels of each push/pop range: through the API call inside it on its thread, and the call's correlation. -16777216 is nsys's 0xFFFFFFFFFF000000."""
    return """
        FROM NVTX_EVENTS n JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.globalTid = n.globalTid
          AND r.start >= n.start AND r."end" <= n."end"
        JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON k.correlationId = r.correlationId
          AND k.globalPid = r.globalTid & -16777216
        JOIN StringIds s ON s.id = k.shortName WHERE n.eventType = 59 AND n.domainId = 1"""


ACTIVITIES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


@pytest.mark.parametrize("table", ACTIVITIES)
def test_every_activity_has_one_launch_that_comes_before_it(table, exported):
    _, nsys = exported
    (activities,), = rows(nsys, f"SELECT count(*) FROM {table}")
    assert activities > 0
    assert rows(nsys, f"""SELECT count(*), sum(r.start < k.start), sum(r."end" <= k.start),
        sum(r.globalTid & -16777216 = k.globalPid) FROM {table} k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)
        """) == [(activities, activities, activities, activities)]


def test_a_launch_that_was_not_recorded_is_on_a_thread_without_ranges(exported):
    ledger, nsys = exported
    names = rows(nsys, """SELECT s.value, count(*), sum(globalTid & 0xffffff = 0) FROM CUPTI_ACTIVITY_KIND_RUNTIME r
                          JOIN StringIds s ON s.id = r.nameId GROUP BY 1 ORDER BY 1""")
    (known,), = rows(ledger, "SELECT count(DISTINCT rank || ' ' || stream || ' ' || start_ns) FROM collective"
                             " WHERE start_ns IS NOT NULL")
    assert [(name, of_thread_0) for name, _, of_thread_0 in names] == [("cuLaunchKernelEx", 0),
                                                                       ("launch not recorded", names[1][1])]
    assert names[0][1] == known > 0
    assert rows(nsys, "SELECT count(*) FROM NVTX_EVENTS WHERE globalTid & 0xffffff = 0") == [(0,)]
    assert rows(nsys, "SELECT DISTINCT s.value FROM ThreadNames JOIN StringIds s ON s.id = nameId"
                      " WHERE globalTid & 0xffffff = 0") == [("launch not recorded",)]


def test_no_range_is_without_length_and_nccls_is_strictly_around_its_launch(exported):
    _, nsys = exported
    assert rows(nsys, "SELECT count(*) FROM NVTX_EVENTS WHERE \"end\" <= start") == [(0,)]
    (launches,), = rows(nsys, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE globalTid & 0xffffff <> 0")
    assert rows(nsys, """SELECT count(DISTINCT r.correlationId) FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN NVTX_EVENTS n
        ON n.globalTid = r.globalTid AND n.domainId = 2 AND n.eventType = 59 AND n.start < r.start AND n."end" > r."end"
        """) == [(launches,)] != [(0,)]


def test_what_is_not_in_the_record_is_in_the_diagnostics(training, tmp_path):
    _, nsys = training
    said = [text for text, in rows(nsys, "SELECT text FROM DIAGNOSTIC_EVENT d JOIN ENUM_DIAGNOSTIC_SEVERITY_LEVEL l"
                                         " ON l.id = d.severity WHERE l.name = 'Warning'")]
    assert any(text.startswith("Only kernels of NCCL were recorded") for text in said)
    empty = [table for table, in rows(nsys, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'CUPTI_%'")
             if rows(nsys, f"SELECT count(*) FROM {table}") == [(0,)]]
    told = [text for text, in rows(nsys, "SELECT text FROM DIAGNOSTIC_EVENT")]
    assert empty and all(any(text.startswith(f"{table} is empty") for text in told) for table in empty)
    _, everything = export("fsdp2-2rank-kernels", tmp_path, "nsys", "run.sqlite")
    assert not any("Only kernels of NCCL" in text for text, in rows(everything, "SELECT text FROM DIAGNOSTIC_EVENT"))


def test_ranks_of_several_hosts_share_neither_a_pid_nor_a_gpu(tmp_path):
    """Two hosts with the same pids, and ranks that each call their GPU number 0."""
    fleet = tmp_path / "fleet"
    subprocess.run([pathlib.Path(BUILD) / "bin" / "make_fleet", fleet, "--ranks", "4", "--per-host", "2"], check=True)
    subprocess.run([COMMAND, "ingest", fleet], check=True, capture_output=True)
    ledger = fleet / "ledger.sqlite"
    with contextlib.closing(sqlite3.connect(ledger)) as database, database:
        database.execute("UPDATE rank SET pid = 77 + rank % 2")
        of_host = database.execute("SELECT count(DISTINCT host), count(DISTINCT device_uuid) FROM rank").fetchone()
    subprocess.run([COMMAND, "export", fleet, "--format", "nsys", "-o", tmp_path / "run.sqlite"], check=True)
    nsys = tmp_path / "run.sqlite"
    assert len({pid for pid, in rows(nsys, "SELECT pid FROM PROCESSES")}) == 4
    assert [name for name, in rows(nsys, "SELECT name FROM PROCESSES")][2:] != ["rank 2", "rank 3"]  # theirs are said
    assert rows(nsys, "SELECT count(DISTINCT vmId), count(DISTINCT id) FROM TARGET_INFO_GPU") == [of_host] == [(2, 4)]
    assert rows(nsys, "SELECT count(DISTINCT pid), count(DISTINCT cudaId) FROM TARGET_INFO_CUDA_DEVICE WHERE cudaId = gpuId"
                ) == [(4, 4)]
    assert rows(nsys, "SELECT count(DISTINCT globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY deviceId") == [(1,)] * 4


def test_every_gpu_that_a_rank_uses_is_one_of_its_devices(tmp_path):
    """Rank 1 keeps memory on rank 0's GPU."""
    ledger, nsys = export("foreign-device-2rank", tmp_path, "nsys", "run.sqlite")
    pids = [pid for pid, in rows(ledger, "SELECT pid FROM rank ORDER BY rank")]
    assert rows(nsys, "SELECT pid, cudaId FROM TARGET_INFO_CUDA_DEVICE ORDER BY pid, cudaId") == [
        (pids[0], 0), (pids[1], 0), (pids[1], 1)]
    assert len({uuid for uuid, in rows(nsys, "SELECT uuid FROM TARGET_INFO_CUDA_DEVICE")}) == 2
    assert rows(nsys, "SELECT count(*) FROM CUDA_GPU_MEMORY_USAGE_EVENTS m LEFT JOIN TARGET_INFO_CUDA_DEVICE d ON"
                      " d.cudaId = m.deviceId AND d.pid = (m.globalPid >> 24) & 0xffffff WHERE d.gpuId IS NULL") == [(0,)]


def test_a_gpu_has_its_multiprocessors_where_they_were_recorded(tmp_path):
    for run, known in (("fsdp2-2rank", True), ("nccl-2rank", False)):
        ledger, nsys = export(run, tmp_path, "nsys", f"{known}.sqlite")
        told = rows(ledger, "SELECT multiprocessors FROM rank ORDER BY device")
        assert (None not in told[0]) == known
        assert rows(nsys, "SELECT smCount FROM TARGET_INFO_GPU ORDER BY id") == told
        assert rows(nsys, "SELECT numMultiprocessors FROM TARGET_INFO_CUDA_DEVICE ORDER BY gpuId") == told


def test_a_gpu_has_its_place_on_the_bus_where_it_was_recorded(tmp_path):
    """nvidia-smi on the machine of that run said 00000000:00:06.0."""
    for run, place in (("rehearsed", "0000:00:06.0"), ("fsdp2-2rank", None)):
        _, nsys = export(run, tmp_path, "nsys", f"{place}.sqlite")
        assert {told for (told,) in rows(nsys, "SELECT busLocation FROM TARGET_INFO_GPU")} == {place}


def test_marks_are_marks_of_their_domains(tmp_path):
    ledger, nsys = export_marks(tmp_path, "nsys", "run.sqlite")
    marks = rows(nsys, """
        SELECT e.text, d.text, e.jsonText ->> 'value', e.jsonText ->> 'step', e.globalTid & 0xffffff FROM NVTX_EVENTS e
        LEFT JOIN NVTX_EVENTS d ON d.eventType = 75 AND d.domainId = e.domainId AND d.globalTid >> 24 = e.globalTid >> 24
        WHERE e.eventType = 34 AND e."end" IS NULL ORDER BY e.text""")
    pid = rows(ledger, "SELECT pid FROM rank WHERE rank = 0")[0][0]
    assert marks == [(*mark, pid) for mark in MARKS]
    zero = rows(ledger, "SELECT min(start_ns) FROM rank")[0][0]
    assert (rows(nsys, "SELECT start FROM NVTX_EVENTS WHERE eventType = 34 ORDER BY start")
            == rows(ledger, "SELECT at_ns - ? FROM mark ORDER BY at_ns", zero))


def test_nvtx_kern_sum(training):
    """Every collective that has a kernel is found under the range it was called in."""
    ledger, nsys = training
    summed = rows(nsys, "SELECT n.text, s.value, count(*), sum(k.\"end\" - k.start)" + projection() +
                  " AND n.text LIKE 'nccl:%' GROUP BY 1, 2 ORDER BY 1")
    told = rows(ledger, "SELECT operation, count(*), sum(end_ns - start_ns) FROM collective WHERE start_ns IS NOT NULL"
                        " GROUP BY 1 ORDER BY 1")
    assert [(count, time) for _, _, count, time in summed] == [(count, time) for _, count, time in told]
    assert [(text, kernel) for text, kernel, _, _ in summed] == [
        ("nccl:_all_gather_base", "ncclDevKernel_AllGather_RING_LL"),
        ("nccl:_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL")]


def test_nvtx_gpu_proj_sum(training):
    """A range's projection reaches from its first kernel's start to its last one's end."""
    ledger, nsys = training
    projected = rows(nsys, "SELECT n.rangeId, max(k.\"end\") - min(k.start)" + projection() +
                  " AND n.text = 'step 2' GROUP BY 1 ORDER BY 1")
    told = rows(ledger, """
        SELECT s.id, max(c.end_ns) - min(c.start_ns) FROM phase s JOIN collective c
        ON c.rank = s.rank AND c.tid = s.tid AND c.enqueue_ns >= s.start_ns AND c.enqueue_ns < s.end_ns
        WHERE s.name = 'step 2' GROUP BY 1 ORDER BY 1""")
    assert projected == told and len(told) == 2


def test_cuda_gpu_mem_size_sum(exported):
    ledger, nsys = exported
    summed = rows(nsys, """
        SELECT o.label, count(*), sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY m JOIN ENUM_CUDA_MEMCPY_OPER o
        ON o.id = m.copyKind GROUP BY 1 UNION ALL
        SELECT 'memset', count(*), sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMSET""")
    names = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device"}
    told = [(names[kind], *rest) for kind, *rest in rows(ledger, "SELECT kind, count(*), sum(bytes) FROM memcpy GROUP BY 1")]
    told += [("memset", *rows(ledger, "SELECT count(*), sum(bytes) FROM memset")[0])]
    assert sorted(summed) == sorted(told)


def test_memory_events_give_the_allocated_bytes_of_each_step(training):
    """Replayed in order, frees find their allocation, and PyTorch's blocks reach every step's exact peak."""
    ledger, nsys = training
    (zero,), = rows(nsys, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
    owners = {owner for owner, in rows(ledger, "SELECT DISTINCT owner FROM segment")}
    for rank, pid in rows(ledger, "SELECT rank, pid FROM rank"):
        live, total, series = {}, 0, []
        for start, address, size, operation, name in rows(nsys, """
                SELECT start, address, bytes, memoryOperationType, name FROM CUDA_GPU_MEMORY_USAGE_EVENTS
                WHERE memKind = 2 AND (globalPid >> 24) & 0xffffff = ? ORDER BY rowid""", pid):
            if name in owners:
                continue
            if operation == 0:
                assert address not in live
                live[address] = size
            else:
                assert live.pop(address) == size
            total += size if operation == 0 else -size
            series.append((start + zero, total))
        for start, end, peak in rows(ledger, "SELECT start_ns, end_ns, peak_allocated_bytes FROM step WHERE rank = ?", rank):
            before = max((at, total) for at, total in series if at <= start)[1]
            assert max([total for at, total in series if start < at <= end] + [before]) == peak


def test_pinned_host_memory_is_told_apart(training):
    ledger, nsys = training
    told = rows(nsys, """SELECT m.name, count(*), sum(bytes) FROM CUDA_GPU_MEMORY_USAGE_EVENTS m JOIN ENUM_CUDA_MEM_KIND k
                         ON k.id = memKind WHERE k.label = 'Pinned' AND memoryOperationType = 0 GROUP BY 1 ORDER BY 1""")
    assert told and told == rows(ledger, "SELECT owner, count(*), sum(bytes) FROM host_segment GROUP BY owner ORDER BY owner")
