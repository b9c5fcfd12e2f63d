"""Device meshes of a real job on the CPU: where each rank stands is in its log, and in the ledger's table mesh."""

import os
import sqlite3
import subprocess

import pytest
from conftest import BUILD

COMMAND = os.path.join(BUILD, "bin", "shardledger")


@pytest.fixture(scope="module")
def job(start_job):
    return start_job("job_mesh.py", ranks=4)().check()


def test_each_mesh_is_told_once_with_the_ranks_own_coordinate(job):
    for rank, log in enumerate(job.logs()):
        told = {key: value for key, value in log.info().items() if key.startswith("mesh.")}
        expected = {"mesh.0": f"2:{rank // 2}:pp 2:{rank % 2}:data_parallel", "mesh.1": f"4:{rank}:0"}
        if rank < 2:  # the others are not in it
            expected["mesh.2"] = f"2:{rank}:first"
        assert told == expected


def test_the_programs_own_meshes_are_what_they_were(job):
    assert [output.out for output in job.output] == [f"DeviceMesh {rank // 2, rank % 2} {rank % 2}\n" for rank in range(4)]
    assert all(output.err == "" for output in job.output)


@pytest.mark.skipif(not os.path.exists(COMMAND), reason=f"{COMMAND} is not built")
def test_the_ledger_has_a_row_a_dimension(job, tmp_path):
    ledger = tmp_path / "run.sqlite"
    subprocess.run([COMMAND, "ingest", job.directory / "log", "-o", ledger], check=True, capture_output=True)
    with sqlite3.connect(ledger) as database:
        rows = database.execute("SELECT mesh, place, dim, size, coordinate FROM mesh WHERE rank = 2 ORDER BY mesh, place")
        assert rows.fetchall() == [(0, 0, "pp", 2, 1), (0, 1, "data_parallel", 2, 0), (1, 0, "0", 4, 2)]
    by_mesh = subprocess.run([COMMAND, "ranks", ledger, "--by", "mesh", "--csv"], check=True, capture_output=True, text=True)
    assert "pp=1" in by_mesh.stdout and "2-3" in by_mesh.stdout
