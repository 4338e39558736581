"""Rows in flight through a checkpoint: all that a row has, its order, and its place after a rescale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.records import Origin, Records, RowKind, concatenated
from onceflow.runtime.state.in_flight import frozen_in_flight, in_flight_rows, is_in_flight, way_uid
from onceflow.runtime.state.key_groups import key_group_range
from onceflow.runtime.testing.harness import cut_state, stored

SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False), ("text", pa.string())])
MAX_PARALLELISM = 16


def batch(first: int, count: int) -> Records:
    keys = np.arange(first, first + count, dtype=np.int64)
    columns = [pa.array(keys % 7), pa.array([None if n % 5 == 0 else f"row {n}" for n in keys.tolist()])]
    origin = Origin(("a", "b"), (keys % 2).astype(np.uint16), keys)
    kinds = np.full(count, RowKind.UPDATE_AFTER, np.int8)
    return Records(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), keys * 10, None, origin, kinds)


def keyed(records: Records, subtask: int, parallelism: int) -> Records:
    parts = dict(Partitioner(("key",), MAX_PARALLELISM, parallelism).split(records))
    return parts[subtask]


def test_a_row_comes_back_with_all_that_it_has_in_its_order() -> None:
    sent = [batch(0, 5), batch(5, 40)]
    frozen = frozen_in_flight(sent, SCHEMA, range(4, 9), MAX_PARALLELISM)
    found = concatenated(list(in_flight_rows([stored(frozen)], SCHEMA, with_origin=True)))
    whole = concatenated(sent)
    assert found.batch.equals(whole.batch)
    assert found.key_hash is None
    for mine, others in ((found.event_time, whole.event_time), (found.kind, whole.kind)):
        np.testing.assert_array_equal(mine, others)
    assert found.origin is not None
    assert whole.origin is not None
    for row in (0, 7, 44):
        assert found.origin.describe(row) == whole.origin.describe(row)


def test_after_a_rescale_each_row_is_where_its_key_is() -> None:
    """From two subtasks to three: by the same hash as rows that are sent."""
    frozen = []
    for subtask in range(2):
        rows = keyed(batch(0, 60), subtask, 2)
        groups = key_group_range(MAX_PARALLELISM, 2, subtask)
        frozen.append(stored(frozen_in_flight([rows], SCHEMA, groups, MAX_PARALLELISM)))
    for subtask in range(3):
        groups = key_group_range(MAX_PARALLELISM, 3, subtask)
        found = concatenated(list(in_flight_rows([cut_state(s, groups) for s in frozen], SCHEMA, False)))
        expected = keyed(batch(0, 60), subtask, 3)
        assert expected.event_time is not None
        assert found.event_time is not None
        assert sorted(found.event_time.tolist()) == expected.event_time.tolist()
        assert found.key_hash is not None
        assert set(found.key_hash.tolist()) == set(np.asarray(expected.key_hash).tolist())


def test_rows_without_a_key_get_to_one_subtask_each() -> None:
    frozen = stored(frozen_in_flight([batch(0, 50)], SCHEMA, range(8), MAX_PARALLELISM))
    found: list[int] = []
    for subtask in range(3):
        cut = cut_state(frozen, key_group_range(MAX_PARALLELISM, 3, subtask))
        for records in in_flight_rows([cut], SCHEMA, False):
            assert records.event_time is not None
            found += records.event_time.tolist()
    assert sorted(found) == [10 * n for n in range(50)]


def test_where_a_row_came_from_may_be_unknown() -> None:
    sent = replace(batch(0, 3), origin=None)
    frozen = frozen_in_flight([sent], SCHEMA, range(8), MAX_PARALLELISM)
    [found] = in_flight_rows([stored(frozen)], SCHEMA, with_origin=True)
    assert found.origin is not None
    assert "not known any more" in found.origin.describe(1)


def test_the_uid_of_a_way_is_told_from_an_operators() -> None:
    assert way_uid("orders", "slow") == "orders > slow"
    assert is_in_flight(way_uid("orders", "slow"))
    assert not is_in_flight("orders-slow")
