"""trackers.py as tests, for a process that is recorded: SHARDLEDGER_MODULES=all shardledger run -- python -m
pytest tests/gpu/trackers/trackers_on_gpu_test.py"""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def recorded():
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    import trackers

    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    torch.zeros(1, device=device)
    from shardledger._companion.answers import figures

    if not figures.is_recorded():
        pytest.skip("this process is not recorded: shardledger run -- python -m pytest …")
    trackers.begin_group("nccl", 1, device)
    return trackers, device


from tracker_jobs import JOBS  # noqa: E402


@pytest.mark.parametrize("name", JOBS)
def test_totals_are_the_allocators_and_owners_are_pytorchs(recorded, name):
    trackers, device = recorded
    rows, answered = trackers.check(name, device)
    assert answered.startswith("shardledger.")
    assert not [row for row in rows if not row.passed]
