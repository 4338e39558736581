"""Without kernels values of one shape are decoded by arrays, and the others one by one.

That both ways agree on hostile values is in test_json_bulk.py.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Decoded
from onceflow.connectors.formats.format import Values, as_list
from onceflow.connectors.formats.json_arrays import ArrayRows
from onceflow.connectors.formats.json_bulk import BulkJsonDecoder
from onceflow.connectors.formats.json_decoder import JsonDecoder

SCHEMA = pa.schema(
    [pa.field("user", pa.string(), nullable=False), pa.field("amount", pa.int64(), nullable=False)]
)
COUNT = 2_000
"""The fewest values that are decoded by arrays."""


class Twin:
    """A JsonDecoder that remembers what it was asked."""

    def __init__(self, schema: pa.Schema) -> None:
        self._decoder = JsonDecoder(schema, None, "error")
        self.schema = schema
        self.asked: list[bytes | None] = []

    def decode(self, values: Values) -> Decoded:
        self.asked += as_list(values)
        return self._decoder.decode(values)


class Both:
    """The decoder of a job without kernels, and the one it must agree with."""

    def __init__(self, schema: pa.Schema = SCHEMA) -> None:
        self._slow = JsonDecoder(schema, None, "error")
        self._twin = Twin(schema)
        self._quick = BulkJsonDecoder(self._twin, ArrayRows(self._slow, None))

    def slowly(self, values: Sequence[bytes | None]) -> list[bytes | None]:
        """What was decoded one by one; asserts that they agree."""
        self._twin.asked.clear()
        ours, theirs = self._quick.decode(pa.array(values, pa.binary())), self._slow.decode(values)
        ours.batch.validate(full=True)
        assert ours.batch == theirs.batch
        assert list(ours.bad) == list(theirs.bad)
        return list(self._twin.asked)


def texts(make: Callable[[int], object], count: int = COUNT, **how: object) -> list[bytes]:
    how = {"separators": (",", ":"), "ensure_ascii": False} | how
    return [json.dumps(make(i), **how).encode() for i in range(count)]  # type: ignore[arg-type]


def purchase(i: int) -> dict[str, object]:
    return {
        "user": f"u{i % 977}",
        "type": "purchase",
        "amount": i * i,
        "ts": 1_700_000_000_000 + i,
        "ok": i > 7,
    }


@pytest.mark.parametrize(
    "make",
    [
        purchase,
        lambda i: {
            "user": "é" * (i % 9),
            "amount": -i,
            "place": {"lat": i / 8, "lon": -0.5, "tags": ["a", "b"]},
        },
        lambda i: {"amount": 5, "user": "always the same", "none": None, "empty": ""},
        lambda i: {"amount": i % 10, "user": "", "long": "x" * (i % 300), "price": 1.25 * i},
        lambda i: {"user": "u" * 100, "other": "o" * 1_000, "amount": 7, "list": [i, i, "a"], "object": {}},
    ],
)
def test_values_of_one_shape_need_no_slow_decoder(make: Callable[[int], object]) -> None:
    both = Both()
    assert both.slowly(texts(make)) == []
    assert both.slowly(texts(make, 3_000)) == []
    assert Both().slowly(texts(make, separators=(", ", ": "))) == []
    assert Both().slowly(texts(make, indent=1)) == []


def test_one_odd_record_in_ten_thousand_is_the_only_one_that_is_decoded_slowly() -> None:
    good = texts(lambda i: purchase(i) | {"note": f"n{i % 1_000}"}, 10_000)
    both = Both()
    one = good[7_777]
    assert both.slowly(good) == []
    for odd in (
        *(
            one[:-1],
            one[1:],
            one[:40],
            one + b" ",
            one + b"x",
            one + b"}",
            one + b"{}",
            one + one,
            b"\n" + one,
        ),
        *(b"", b"{}", b"{", b'"', None, b"\xff", b"x" * 500),
        *(one.replace(b"n777", text) for text in (b"n\x01", b"n\\n", b'n"', b"n\n", b"\x00", b"n\\u0041")),
        *(one.replace(b'"u', text) for text in (b'"\x1f', b'"\\t', b'"u"', b'"\xff')),
        *(one.replace(b":true", text) for text in (b":True", b":nul", b":1", b": true", b":true ")),
    ):
        values: list[bytes | None] = [*good]
        values[7_777] = odd
        assert both.slowly(values) == [odd]


def test_a_control_character_is_found_beside_letters_beyond_ascii() -> None:
    both = Both(pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64())]))
    usual = ['{"k":"é%06d","n":1}'.encode() % i for i in range(COUNT)]
    assert both.slowly(usual) == []
    odd = '{"k":"é00000\x1f","n":1}'.encode()
    assert both.slowly([*usual, odd]) == [odd]


def test_a_text_ends_at_its_first_quote_though_the_others_are_longer() -> None:
    both = Both(pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64())]))
    usual = [b'{"k":"%08d","n":1}' % i for i in range(COUNT)]
    assert both.slowly(usual) == []
    for hidden in (b'{"k":"a","b":"","n":1}', b'{"k":"a","b":x","n":1}'):
        values = [*usual, hidden, *usual]
        assert both.slowly(values) == [hidden]
        many = [*usual, *[hidden] * 70, *usual]
        assert both.slowly(many) == [hidden] * 70


def test_what_was_the_same_in_all_values_may_change_later() -> None:
    both = Both()
    for user, amount, more in (("u", 1, True), ("v", 2, True), ("long", 300, False), ("", -4, False)):
        values = texts(lambda i: {"user": user, "amount": amount, "more": more, "at": amount})  # noqa: B023
        assert both.slowly(values) == []


def test_values_of_another_shape_from_now_on_need_no_slow_decoder_either() -> None:
    both = Both()
    assert both.slowly(texts(purchase)) == []
    assert both.slowly(texts(lambda i: {"at": i, "amount": i, "user": f"u{i}"})) == []
    assert both.slowly(texts(purchase)) == []


def test_where_values_look_unlike_each_other_the_slow_decoder_does_all_for_a_while() -> None:
    chance = random.Random(1)
    mixed = texts(lambda i: dict(chance.sample(list(purchase(i).items()), 5)))
    both = Both()
    assert len(both.slowly(mixed)) > COUNT // 2
    assert both.slowly(texts(purchase)) == texts(purchase)


def test_many_fields_that_nobody_wants_and_that_vary_are_left_to_the_slow_decoder() -> None:
    values = texts(lambda i: purchase(i) | {f"more{j}": i * j for j in range(20)})
    assert Both().slowly(values) == values


def test_a_few_values_are_left_to_the_slow_decoder() -> None:
    assert Both().slowly(texts(purchase, COUNT - 1)) == texts(purchase, COUNT - 1)


def test_a_value_that_is_not_there_has_no_row_whatever_lies_where_it_would_be() -> None:
    values = texts(purchase)
    _, offsets, data = pa.array(values, pa.binary()).buffers()
    valid = pa.array([i != 5 for i in range(COUNT)]).buffers()[1]
    array = pa.Array.from_buffers(pa.binary(), COUNT, [valid, offsets, data])
    twin = JsonDecoder(SCHEMA, None, "skip")
    decoded = BulkJsonDecoder(twin, ArrayRows(twin, None)).decode(array)
    assert decoded.rows is not None
    assert decoded.rows.tolist() == [i for i in range(COUNT) if i != 5]
    assert decoded.batch == twin.decode(values[:5] + values[6:]).batch


@pytest.mark.parametrize("arrow", [pa.string(), pa.int64(), pa.float64(), pa.bool_()])
def test_a_column_in_which_all_is_null_is_left_to_the_slow_decoder(arrow: pa.DataType) -> None:
    values = texts(lambda i: purchase(i) | {"note": None})
    assert Both(pa.schema([*SCHEMA, pa.field("note", arrow)])).slowly(values) == values


def test_a_name_that_comes_twice_is_left_to_the_slow_decoder() -> None:
    values = [b'{"user":"u%d","amount":%d,"user":"v"}' % (i, i) for i in range(COUNT)]
    assert Both().slowly(values) == values


def test_a_column_that_no_value_has_is_null_or_its_default() -> None:
    schema = pa.schema([*SCHEMA, pa.field("note", pa.string()), pa.field("price", pa.float64())])
    assert Both(schema).slowly(texts(purchase)) == []


def test_decoding_does_not_change_what_was_decoded_before() -> None:
    decoder = BulkJsonDecoder(Twin(SCHEMA), ArrayRows(JsonDecoder(SCHEMA, None, "error"), None))
    first = decoder.decode(pa.array(texts(purchase), pa.binary())).batch
    seen = first.to_pylist()
    decoder.decode(pa.array([b'{"user":"XXXXXXXXXXXX","amount":0}'] * COUNT, pa.binary()))
    assert first.to_pylist() == seen
