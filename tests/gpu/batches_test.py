"""The largest batch that fits, as 'shardledger advise' says it, is what recorded runs of that batch say themselves."""

import pytest
from checks import batches


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return list(batches.recorded_rows(tmp_path_factory.mktemp("batches")))


def test_a_batch_that_was_recorded_fits_where_it_did(rows):
    assert len(rows) == 18
    for told, batch, roomy, _ in rows:
        assert batch <= roomy <= batch + 1, (told.name, batch)


def test_a_batch_that_was_recorded_does_not_fit_in_less_than_it_allocated(rows):
    for told, batch, _, tight in rows:
        assert batch - 2 <= tight < batch, (told.name, batch)


def test_what_was_said_under_a_limit_is_said_again(tmp_path):
    for (kind, limit), (said, _) in batches.tried().items():
        assert batches.largest(batches.Told(kind, 4, 8), limit, tmp_path) == said
