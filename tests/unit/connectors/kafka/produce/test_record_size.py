"""Records that the topic would refuse are named; others pass, however many there are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.connectors.kafka.produce.record_size import longest, refuse_too_large
from onceflow.runtime.errors import Fatal

LIMIT = 1_000
OVERHEAD = 100


def rows(*records: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    made = [{"topic": "out", "partition": 0, "key": key, "value": value} for key, value in records]
    return pa.RecordBatch.from_pylist(made, PRODUCE_SCHEMA)


@pytest.mark.parametrize("key", [None, b"", b"k" * 300])
def test_the_largest_record_decides(key: bytes | None) -> None:
    room = LIMIT - OVERHEAD - len(key or b"")
    fits = [(key, b"v" * room), (None, None), (None, b"v" * 10), (b"k" * 300, b"v")]
    for at in range(len(fits) + 1):
        refuse_too_large(rows(*fits[:at], *fits)[1:], LIMIT)
        with pytest.raises(Fatal, match=f"{LIMIT - OVERHEAD + 1} bytes, the topic takes {LIMIT}"):
            refuse_too_large(rows(*fits[:at], (key, b"v" * (room + 1)), *fits[at:]), LIMIT)


def test_many_keys_that_are_more_than_a_record_may_be_are_looked_at_one_by_one() -> None:
    many = [(b"k" * 300, b"v" * 10)] * 20
    refuse_too_large(rows(*many), LIMIT)
    with pytest.raises(Fatal, match="910 bytes, the topic takes 1000"):
        refuse_too_large(rows(*many, (b"k" * 900, b"v" * 10)), LIMIT)


def test_the_longest_value_of_a_part() -> None:
    values = pa.array([b"x" * 50, None, b"xxx", b"", b"xxxxx", None, b"x" * 60], pa.large_binary())
    assert longest(values[1:6]) == 5
    assert longest(values[:2]) == 50
    assert longest(values[5:]) == 60
    assert longest(pa.nulls(3, pa.large_binary())) == 0
