"""Types in descriptions of state: how they are written, and which is wider than which."""

from __future__ import annotations

import pyarrow as pa

from onceflow.runtime.state.description import is_wider, type_text


def test_types_are_written_without_what_does_not_matter() -> None:
    a, b = pa.field("a", pa.int64()), pa.field("b", pa.string(), nullable=False)
    assert (
        type_text(pa.struct([b, a])) == type_text(pa.struct([a, b])) == "struct<a: int64, b: string not null>"
    )
    assert type_text(pa.list_(pa.field("element", pa.int64()))) == type_text(pa.list_(pa.int64()))
    assert type_text(pa.list_(pa.field("item", pa.int64(), nullable=False))) == "list<int64 not null>"
    assert type_text(pa.timestamp("ms", "UTC")) == "timestamp[ms, tz=UTC]"


def test_a_type_is_wider_if_and_only_if_it_allows_null_where_the_other_does_not() -> None:
    narrow = "struct<a: int64 not null, b: list<string not null> not null>"
    for wide in (
        "struct<a: int64, b: list<string>>",
        "struct<a: int64, b: list<string not null> not null>",
        "struct<a: int64 not null, b: list<string> not null>",
    ):
        assert is_wider(wide, narrow)
        assert not is_wider(narrow, wide)
    assert not is_wider(narrow, narrow)
    assert not is_wider("struct<a: double, b: list<string>>", narrow)
    assert not is_wider("struct<a: int64, b: int64 not null>", "struct<a: int64 not null, b: int64>")
