"""Keys as text: one text for each key."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from onceflow.connectors.versioned_upserts.keys import check_key, key_columns, key_texts
from onceflow.runtime.errors import GraphError, OptionError


def test_the_texts_of_keys() -> None:
    noon = dt.datetime(2026, 2, 28, 12)
    batch = pa.record_batch({"n": [1, -2], "s": ["a:b", "50%"], "d": [noon.date()] * 2, "b": [True, False]})
    assert key_texts(batch, ["n"]) == ["1", "-2"]
    assert key_texts(batch, ["s"]) == ["a:b", "50%"]
    assert key_texts(batch, ["n", "s", "d", "b"]) == [
        "1:a%3Ab:2026-02-28:true",
        "-2:50%25:2026-02-28:false",
    ]


def test_no_two_keys_of_several_columns_have_one_text() -> None:
    values = ["", ":", "%", "%3A", "::", "a:", ":a"]
    pairs = [(a, b) for a in values for b in values]
    first, second = zip(*pairs, strict=True)
    texts = key_texts(pa.record_batch({"a": first, "b": second}), ["a", "b"])
    assert len(set(texts)) == len(pairs)


def test_a_column_that_can_be_no_key_is_refused() -> None:
    schema = pa.schema([("id", pa.int64()), ("rate", pa.float64()), ("tags", pa.list_(pa.string()))])
    check_key(["id"], schema, "out")
    for name, sentence in (("idd", "'idd' is not in the rows"), ("rate", "is double"), ("tags", "is list")):
        with pytest.raises(GraphError, match=f"sink 'out': key column .*{sentence}"):
            check_key([name], schema, "out")


@pytest.mark.parametrize("key", ["", [], [""]])
def test_a_key_names_columns(key: str | list[str]) -> None:
    assert key_columns("id", "RedisSink") == ("id",)
    with pytest.raises(OptionError, match="RedisSink: key must name the column"):
        key_columns(key, "RedisSink")
