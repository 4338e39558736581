"""Many values decoded in one call mean what each of them means alone, however they try to run together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.connectors.formats.json_decoder import JsonDecoder
from onceflow.connectors.formats.json_lines import as_lines
from onceflow.runtime.record_types import describe_record


@dataclass
class Pair:
    a: int
    b: str = "none"


PAIR = describe_record(Pair)
SCHEMA = PAIR.schema
LINES = JsonDecoder(SCHEMA, PAIR, "error", lines_min=1)
ALONE = JsonDecoder(SCHEMA, PAIR, "error", lines_min=1 << 60)

GOOD = st.builds(
    lambda a, b, more: b'{"a":%d,"b":"%s"%s}' % (a, b, more),
    st.one_of(st.integers(-3, 3), st.sampled_from([1 << 63, -(1 << 63), (1 << 63) - 1])),
    st.sampled_from([b"", b"x", b"\xc3\xa9", b"\\n", b"{", b"}", b"\\ud800", b"\xff", b"\n", b"\\\\"]),
    st.sampled_from([b"", b',"a":2', b',"c":[{}]', b',"c":{"a":1.5e400}', b',"\\u0061":7', b',"b":null']),
)
PIECES = st.sampled_from(
    [
        b'{"a":1}{"a":2}', b'{"a":1}\n{"a":2}', b'{"a":1},{"a":2}', b'{"a":1,"c":[{}', b'{}],"a":1}', b"{}",
        b'{"a":1,"b":"}', b'{","a":2}', b'{"a":1,"c":{"x":{}', b'{},"a":3}}', b"", b" ", b'{"a":1} ', b"[]",
        b' {"a":1}', b'{"a":\n1\n}', b'\xef\xbb\xbf{"a":1}', b"}{", b"{", b"}", b"null", b'{"a":01}',
        b'{"a":1.0}', b'{"a":NaN}', b'{"a":' + b"[" * 3_000 + b"]" * 3_000 + b"}",
    ]
)  # fmt: skip
ANY = st.one_of(GOOD, GOOD, PIECES, st.none())


def outcome(decoder: JsonDecoder, values: Any) -> Any:
    decoded = decoder.decode(values)
    rows = range(len(values)) if decoded.rows is None else decoded.rows.tolist()
    return list(rows), decoded.batch.to_pylist(), decoded.bad


def test_the_words_of_this_test_are_decoded_as_lines() -> None:
    array = pa.array([b'{"a":1}', b'{"a":2,"c":[{}]}'])
    lines = as_lines(array)
    assert lines is not None
    assert lines.to_pybytes() == b'{"a":1}\n{"a":2,"c":[{}]}'
    assert outcome(LINES, array) == ([0, 1], [{"a": 1, "b": "none"}, {"a": 2, "b": "none"}], ())


@settings(max_examples=400, deadline=None)
@given(st.lists(ANY, max_size=5), st.integers(0, 2))
@example([b'{"a":1}{"a":2}', b'{"a":1,"b":"}', b'{"}'], 0)
@example([b'{"a":1}{"a":2}', b'{"a":1,"b":"}', b'{x"}'], 0)
@example([b'{"a":1},{"a":2}', b'{"a":1,"c":[{}', b'{}],"a":1}'], 0)
@example([b'{"a":1}\n{"a":2}', b'{"a":1,"c":{}', b',"b":"x"}'], 0)
@example([b'{"a":1}{"a":2}', b""], 0)
@example([b'{"a":1}{"a":2}', b" "], 0)
@example([b'{"a":1}{"a":2}'], 0)
@example([b'{"a":1}{"a":2,"c":', b'{"a":1}}'], 0)
@example([b'{"a":1}', b'{"a":1}', b'{"a":1}{"a":2,"c":', b'{"a":1}}'], 2)
def test_values_mean_the_same_in_one_call_and_one_by_one(values: list[bytes | None], skip: int) -> None:
    for arrow in (pa.binary(), pa.large_binary()):
        array = pa.array(values, arrow).slice(skip)
        assert outcome(LINES, array) == outcome(ALONE, values[skip:])


@pytest.mark.parametrize("arrow", [pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.float64(), pa.uint64()])
def test_numbers_at_the_ends_of_their_range_are_read_and_beyond_them_refused(arrow: pa.DataType) -> None:
    decoder = JsonDecoder(pa.schema([pa.field("a", arrow, False)]), None, "error", lines_min=1)
    if arrow == pa.float64():
        texts, good = ["1e308", "-1.5", "7", "1e309"], [1e308, -1.5, 7.0]
    else:
        limits = np.iinfo(arrow.to_pandas_dtype())
        good = [int(limits.max), int(limits.min), 0]
        texts = [*map(str, good), str(int(limits.max) + 1)]
    values = [b'{"a":%s}' % text.encode() for text in texts]
    decoded = decoder.decode(pa.array(values))
    assert decoded.batch.column(0).to_pylist() == good
    assert decoded.batch.column(0).type == arrow
    assert [bad.row for bad in decoded.bad] == [3]
