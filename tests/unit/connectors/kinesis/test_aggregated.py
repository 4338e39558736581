"""Records of Amazon's producer library: unpacked as Google's library packs them, and left alone if they are
none."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.connectors.kinesis.aggregated import HashRange, Part, hash_of, parts
from tests.unit.connectors.kinesis.producer_library import MAGIC, aggregated

ALL = HashRange(0, 2**128 - 1)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=300)), min_size=1, max_size=9))
def test_packed_records_come_out_as_they_went_in(records: list[tuple[str, bytes]]) -> None:
    assert parts(aggregated(records), "outer", ALL) == [Part(data, key) for key, data in records]


def test_records_of_other_shards_are_left_out() -> None:
    """The producer sends those again to where they belong."""
    records = [(f"k{n}", b"%d" % n) for n in range(50)]
    packed = aggregated(records, {"k3": 7})
    middle = 2**127
    low, high = parts(packed, "", HashRange(0, middle - 1)), parts(packed, "", HashRange(middle, ALL.last))
    assert {part.key for part in low} == {key for key, _ in records if key == "k3" or hash_of(key) < middle}
    assert {part.key for part in (*low, *high)} == {key for key, _ in records}
    assert len(low) + len(high) == len(records)


@pytest.mark.parametrize("seen", ["magic only", "digest", "cut", "field"])
def test_what_only_looks_like_it_is_a_record_as_it_is(seen: str) -> None:
    whole = aggregated([("k", b"data")])
    message = {"cut": whole[4:-17], "field": b"\x0b"}.get(seen, b"")
    data = {
        "magic only": MAGIC,
        "digest": whole[:-1] + bytes([whole[-1] ^ 1]),
    }.get(seen, MAGIC + message + hashlib.md5(message, usedforsecurity=False).digest())
    assert parts(data, "outer", ALL) == [Part(data, "outer")]
