"""The bulk decoder of JSON agrees with JsonDecoder on everything, and does what is plain itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.connectors.formats import Decoded, Json
from onceflow.connectors.formats.format import Values, as_list
from onceflow.connectors.formats.json.strict import JsonDecoder, OnNull
from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.value_types import RecordType
from tests.unit.guarded_memory import array_of, before_closed_page

if not ops().are_compiled:
    pytest.skip("needs numba", allow_module_level=True)

from onceflow.connectors.formats.json.bulk import _VALUES_MIN, BulkJsonDecoder

LONG = "a name that is longer than one block of the kernel"


@dataclass
class Purchase:
    user: str
    amount: int
    note: str | None = None
    price: float = 0.5
    is_ok: bool = True
    tag: str = "défaut"
    own: str = field(default_factory=str)


SCHEMA = pa.schema(
    [
        pa.field("user", pa.large_string()),
        pa.field("amount", pa.int16()),
        pa.field("price", pa.float64()),
        pa.field("single", pa.float32()),
        pa.field("is_ok", pa.bool_()),
        pa.field("é", pa.uint64()),
        pa.field(LONG, pa.int64()),
    ]
)
PURCHASE = describe_record(Purchase)
REQUIRED = pa.schema(
    [pa.field("user", pa.string(), nullable=False), pa.field("amount", pa.int64(), nullable=False)]
)


class Judge:
    """A JsonDecoder that remembers what it was asked."""

    def __init__(
        self, schema: pa.Schema, record_type: RecordType | None = None, on_null: OnNull = "error"
    ) -> None:
        self._decoder = JsonDecoder(schema, record_type, on_null)
        self.asked: list[bytes | None] = []

    @property
    def schema(self) -> pa.Schema:
        return self._decoder.schema

    def decode(self, values: Values) -> Decoded:
        self.asked += as_list(values)
        return self._decoder.decode(values)


class Pair:
    """Both decoders of a schema."""

    def __init__(
        self,
        schema: pa.Schema,
        record_type: RecordType | None = None,
        on_null: OnNull = "error",
    ) -> None:
        self.slow = JsonDecoder(schema, record_type, on_null)
        self._judge = Judge(schema, record_type, on_null)
        self._record_type = record_type
        self.start_over()

    def start_over(self) -> None:
        """Forgets the records before, and that they were odd."""
        self.bulk = BulkJsonDecoder(self._judge, self._record_type, values_min=1)

    def agree(self, values: Sequence[bytes | None], given: Values | None = None) -> list[bytes | None]:
        """Asserts that both say the same; the values that the bulk decoder did not decode itself."""
        given = values if given is None else given
        self._judge.asked.clear()
        ours, theirs = self.bulk.decode(given), self.slow.decode(values)
        ours.batch.validate(full=True)
        assert ours.batch.schema == theirs.batch.schema
        # As text: -0.0 is not 0.0, and NaN would be NaN.
        assert repr(ours.batch.to_pylist()) == repr(theirs.batch.to_pylist())
        assert _rows(ours, values) == _rows(theirs, values)
        assert list(ours.bad) == list(theirs.bad)
        return list(self._judge.asked)


def _rows(decoded: Decoded, values: Sequence[bytes | None]) -> list[int]:
    rows = list(range(len(values))) if decoded.rows is None else decoded.rows.tolist()
    assert len(rows) == decoded.batch.num_rows
    return [int(row) for row in rows]


PAIRS = {
    "nullable": Pair(SCHEMA),
    "skip": Pair(SCHEMA, on_null="skip"),
    "nulls": Pair(SCHEMA, on_null="nulls"),
    "record": Pair(PURCHASE.schema, PURCHASE),
    "required": Pair(REQUIRED),
    "no columns": Pair(pa.schema([])),
}
GOOD = b'{"user":"u1","amount":1,"own":"o"}'


def in_a_slice(values: Sequence[bytes | None], arrow: pa.DataType) -> pa.Array:
    """The same values, from the middle of an array."""
    return pa.array([b"before", None, *values, b"after", None], arrow).slice(2, len(values))


# --- A table of hostile values --------------------------------------------------------------------

HOSTILE_NUMBERS = (
    b"0 -0 -0.0 0.0 00 01 -01 1. .5 +1 - 1e 1e+ 1.0 1e3 1E3 1e-5 -0e0 0e5 NaN Infinity -Infinity 1e400 "
    b"-1e400 1e-400 5e-324 2.2250738585072014e-308 1.7976931348623157e308 3.4028235e38 3.4028236e38 1e22 "
    b"1e23 9007199254740993 9007199254740993.0 0.1 0.30000000000000004 123456789012345678 "
    b"1234567890123456789 9223372036854775807 9223372036854775808 -9223372036854775808 "
    b"-9223372036854775809 18446744073709551615 18446744073709551616 123456789012345678901234567890 "
    b"0.1234567890123456789012345 1e0000000005 127 32767 32768 -32768 -32769 1_0 0x10 1.5e 1..2 --1 "
    b"1e1.5 true false null nul tr fa truex nullx True "
).split()
HOSTILE_NUMBERS += [b"%d.5" % (9 * 10**power) for power in (17, 18, 20, 36, 37, 38, 39, 308, 309)]
HOSTILE_TEXTS = [
    b'""', b'"u', b'"', b'u"', b"'u'", b'"\\n\\"\\\\\\/\\b\\f\\r\\t"', b'"\\x"', b'"\\u00e9\\u20AC"',
    b'"\\u00"', b'"\\u00g0"', b'"\\ud83d\\ude00"', b'"\\ud83d"', b'"\\ud83dx"', b'"\\ud83d\\u0041"',
    b'"\\ude00"', b'"\\u0000"', b'"a\x00b"', b'"a\x1fb"', b'"a\nb"', b'"\x7f"', b'"\xff"', b'"\xc0\x80"',
    b'"\xc3"', b'"\xc3\xa9"', b'"\xe2\x82"', b'"\xed\xa0\x80"', b'"\xe0\x80\x80"', b'"\xf0\x9f\x98\x80"',
    b'"\xf4\x90\x80\x80"', b'"\xf8\x88\x80\x80\x80"', b'"' + b"x" * 31 + b'"', b'"' + b"x" * 32 + b'"',
    b'"' + b"x" * 31 + "é".encode() + b'"', b'"' + "😀".encode() * 50 + b'"', b'"' + b"y" * 100_000 + b'"',
    b'"\\', b'"\\u', b'"' + b"x" * 40 + b'\\"',
]  # fmt: skip
HOSTILE_NESTED = [
    b"[]", b"{}", b"[ ]", b"[1,]", b"[,1]", b"[1 2]", b"[1", b"[}", b"{]", b'{"a"}', b'{"a":}', b'{"a":1,}',
    b"{1:2}", b'{"a":1 "b":2}', b'{"\\ud800":1}', b'{"\xff":[{},[],[[{"b":null}]]]}',
    b'[{"a":[1,{"b":[true,false]}]},"\\n"]', b"[[1],2,]", b"[" * 59 + b"]" * 59, b"[" * 60 + b"]" * 60,
    b"[" * 61 + b"]" * 61, b"[" * 70 + b"1" + b"]" * 70, b'{"a":' * 65 + b"1" + b"}" * 65, b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000, b"[]]", b"[1e5,-0.5,0]", b"[01]", b'["a\x01"]', b"[\x00]",
    b"[1,\n\t 2 ]",
]  # fmt: skip
HOSTILE_VALUES = [
    None, b"", b" ", b"\n", b"{", b"}", b"{}", b" { } ", b"{} {}", b"{}{}", b"{}\x00", b"{}x", b"[]",
    b"null", b"1", b'"a"', b"\xef\xbb\xbf{}", b"\x0b{}", b"{,}", b'{"user"}', b'{"user":}',
    b'{"user":"u","amount":1,}', b'{"user":"u"', b'{"user":"u","amount":1}{"user":"v","amount":2}',
    b'{"user":"u","amount":1}\n{"user":"v","amount":2}', b'{"user":"u","amount":1}   \r\n\t',
    b'   {"user":"u","amount":1}', b'{"user":"u" "amount":1}', b',"amount":1}',
    b'{"user":"u","user":"v","amount":1}', b'{"user":7,"user":"u","amount":1}',
    b'{"user":"u","user":7,"amount":1}', b'{"\\u0075ser":"u","amount":1}',
    b'{"\\u0075ser":7,"amount":1,"user":"u"}', b'{"user":"u","us\\er":1,"amount":1}',
    b'{"us\x01er":1,"user":"u","amount":1}', b'{user:"u","amount":1}', b'{"user":"u","amount":1,"\xff":2}',
    b'{"amount" : 1 ,\n "user"\t:\r"u" }', b'{"user":"u","amount":    1}', b'{"user":"u","amount":1 }',
    b'{"":1,"user":"u","amount":1}', b'{"user":"u","amount":1,"user2":"x","use":1,"amoun":[]}',
    b'{"user":"u"."amount":1}', b'{"user":"u";"amount":1}',
    b'{"user":"u","amount":1,"note":null,"price":null,"is_ok":null,"tag":null}', b'{"amount":1}',
    b'{"user":null,"amount":1}',
    b'{"user":"u","amount":1,"' + LONG.encode() + b'":5,"' + LONG.encode()[:-1] + b'x":6}', b"garbage",
    b"\x00" * 40,
]  # fmt: skip


def with_field(name: str) -> list[bytes]:
    """Objects that hold in this field whatever there is."""
    around = {
        "user": [b'{"own":"o","%s":%s,"amount":1}'],
        "amount": [b'{"user":"u","own":"o","%s":%s}', b'{"user":"u","own":"o","%s": %s }'],
    }.get(name, [b'{"user":"u","amount":1,"own":"o","%s":%s}', b'{"%s":%s,"amount":1,"user":"u"}'])
    contents = [*HOSTILE_NUMBERS, *HOSTILE_TEXTS, *HOSTILE_NESTED]
    return [text % (name.encode(), content) for content in contents for text in around]


@pytest.mark.parametrize("name", PAIRS)
def test_both_agree_on_hostile_values(name: str) -> None:
    pair = PAIRS[name]
    names = ("user", "amount", "price", "single", "is_ok", "é", LONG, "unwanted")
    for hostile in (HOSTILE_VALUES, *map(with_field, names)):
        values = [v for value in hostile for v in (GOOD, GOOD, value)]
        pair.agree(values)
        pair.agree(values, in_a_slice(values, pa.large_binary()))


IN_PLACE = {
    b"user": b'"u1"', b"amount": b"12", b"price": b"1.5", b"single": b"0.5", b"is_ok": b"true",
    "é".encode(): b"7", LONG.encode(): b"-8", b"note": b'"n"', b"tag": b'"t"', b"own": b'"o"',
    b"text": b'"some"', b"number": b"-1.25", b"word": b"null",
}  # fmt: skip


HOSTILE = [*HOSTILE_NUMBERS, *HOSTILE_TEXTS, *HOSTILE_NESTED, b"7", b"-120", b'"v2"', b"1.75", b"\xff"]


def in_place(name: bytes = b"", content: bytes = b"") -> bytes:
    """A record that looks like the others but for this scalar."""
    contents = IN_PLACE | ({name: content} if name else {})
    return b"{" + b",".join(b'"%s":%s' % field for field in contents.items()) + b"}"


@pytest.mark.parametrize("name", PAIRS)
def test_both_agree_on_hostile_scalars_where_other_records_have_usual_ones(name: str) -> None:
    pair = PAIRS[name]
    for place in IN_PLACE:
        pair.start_over()
        values = [value for content in HOSTILE for value in (in_place(), in_place(place, content))]
        pair.agree(values)
        pair.agree(values, in_a_slice(values, pa.large_binary()))


@pytest.mark.parametrize("place", [b"user", b"amount", b"text", b"number", b"word"])
def test_both_agree_on_a_hostile_scalar_where_nearly_all_records_have_the_same(place: bytes) -> None:
    pair = Pair(REQUIRED)
    usual = [in_place()] * 120
    for content in HOSTILE:
        value = in_place(place, content)
        asked = pair.agree([*usual, value])
        assert asked in ([], [value])


@pytest.mark.parametrize("name", PAIRS)
def test_both_agree_on_nothing_and_on_nothing_but_bad_values(name: str) -> None:
    for values in ([], [None] * 10, [b"x"] * 10, [b""] * 10, [b""]):
        PAIRS[name].start_over()
        PAIRS[name].agree(values)
        PAIRS[name].agree(values, pa.array(values, pa.binary()))


# --- Records as they may come ---------------------------------------------------------------------

NAMES = ["user", "amount", "price", "single", "is_ok", "é", LONG, "note", "tag", "own", "unwanted", "other"]
TEXTS = st.text(max_size=50) | st.text('ab\\"\n\0é€😀', max_size=70)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
USUAL = {
    "user": TEXTS, "note": st.none() | TEXTS, "tag": TEXTS, "own": TEXTS,
    "amount": st.integers(-40_000, 40_000), "price": FLOATS | st.integers(),
    "is_ok": st.booleans(),
    "single": st.floats(width=32, allow_nan=False, allow_infinity=False), "é": st.integers(0, 1 << 64),
    LONG: st.integers(-(1 << 63), (1 << 63) - 1), "unwanted": ANYTHING, "other": ANYTHING,
}  # fmt: skip


@st.composite
def record(draw: st.DrawFn, names: list[str]) -> bytes:
    """Mostly the same fields, mostly of the right types, as one of several writers writes them."""
    kept = draw(
        st.sampled_from([names, names, names, names[::-1], names[:-1], names[1:] + names[:1], names * 2])
    )
    fields = []
    for name in kept:
        value = draw(st.one_of(USUAL[name], USUAL[name], USUAL[name], USUAL[name], ANYTHING))
        fields.append((name, value))
    ascii_only = draw(st.booleans())
    comma, colon = draw(st.sampled_from([(",", ":"), (",", ":"), (", ", ": "), (" ,\n", "\t:  ")]))
    inside = comma.join(
        json.dumps(name, ensure_ascii=False) + colon + json.dumps(value, ensure_ascii=ascii_only)
        for name, value in fields
    )
    return ("{" + inside + "}").encode("utf-8", "surrogatepass")


PIECES = [b"", b"null", b"\xff", b"\xc3", *(bytes([byte]) for byte in b'"\\,:{}[]01.e- n\0')]


@st.composite
def mutated(draw: st.DrawFn, values: st.SearchStrategy[bytes]) -> bytes:
    """Values with a few bytes changed, put in, or left out."""
    value = bytearray(draw(values))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(value)))
        new = draw(st.sampled_from(PIECES))
        value[at : at + draw(st.integers(0, 2))] = new
    return bytes(value)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes | None]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    values = record(names)
    return draw(st.lists(st.one_of(values, values, values, mutated(values), st.none()), max_size=12))


@given(batches(), st.sampled_from(sorted(PAIRS)))
@settings(max_examples=100, deadline=None)
def test_both_agree_on_records_and_on_what_is_left_of_them(values: list[bytes | None], name: str) -> None:
    pair = PAIRS[name]
    pair.agree(values)
    pair.agree(values, in_a_slice(values, pa.large_binary()))


# --- What the kernel does itself ------------------------------------------------------------------


def records(count: int) -> list[bytes]:
    return [
        b'{"user":"user-%d","kind":"purchase","amount":%d,"more":{"a":[1,2.5,"x\\n"]}}' % (i % 97, i)
        for i in range(count)
    ]


def test_one_bad_record_in_ten_thousand_is_the_only_one_that_is_decoded_slowly() -> None:
    pair = Pair(REQUIRED)
    values = records(10_000)
    values[7_777] = values[7_777][:-1]
    assert pair.agree(values) == [values[7_777]]
    assert pair.agree(values, pa.array(values, pa.binary())) == [values[7_777]]


@pytest.mark.parametrize(
    "value",
    [
        b'{"user":"u","amount":5}',
        b'{ "user" : "u" , "amount" : 5 }\n',
        b'{"amount":-5,"user":"\\u00e9\\n\xc3\xa9"}',
        b'{"user":"u","x":{"a":[]},"amount":1234567890123456789,"y":-1.5e-7}',
        b'{"user":"u","amount":5,"single":0.1,"price":0.30000000000000004,"is_ok":false}',
        b'{"user":"u","amount":5,"tag":"t","note":null,"price":17}',
    ],
)
def test_usual_records_need_no_slow_decoder(value: bytes) -> None:
    wide = pa.schema([pa.field("user", pa.string()), pa.field("amount", pa.int64()), *list(SCHEMA)[2:]])
    for schema in (REQUIRED, wide, pa.schema([])):
        assert Pair(schema).agree([value, value]) == []


def test_fields_that_are_left_out_or_new_need_no_slow_decoder() -> None:
    schema = pa.schema([pa.field(name, pa.int64()) for name in "abcdef"])
    rows = ["abcdef", "abdef", "af", "fedcba", "aXbcdYef", "abcdef", "c", "cb", "XYZ", "ab"]
    values = [("{" + ",".join(f'"{name}":{i}' for i, name in enumerate(row)) + "}").encode() for row in rows]
    assert Pair(schema).agree(values) == []


def test_records_of_more_fields_than_a_shape_holds_are_decoded_too() -> None:
    schema = pa.schema([pa.field("f7", pa.int64()), pa.field("f599", pa.int64())])
    value = json.dumps({f"f{i}": i for i in range(600)}).encode()
    assert Pair(schema).agree([value] * 5) == []


def test_defaults_are_filled_in_but_not_those_that_a_function_makes() -> None:
    pair = PAIRS["record"]
    pair.start_over()
    assert pair.agree([GOOD] * 3) == []
    without = b'{"user":"u","amount":1}'
    assert pair.agree([GOOD, GOOD, without]) == [without]


def test_a_few_values_are_left_to_the_slow_decoder() -> None:
    judge = Judge(REQUIRED)
    decoder = BulkJsonDecoder(judge, None)
    decoder.decode(records(_VALUES_MIN))
    assert judge.asked == []
    decoder.decode(records(_VALUES_MIN - 1))
    assert judge.asked == records(_VALUES_MIN - 1)


def test_where_most_values_are_odd_the_slow_decoder_does_all_for_a_while() -> None:
    pair = Pair(REQUIRED)
    good, odd = records(100), [b'{"user":"u","user":"v","amount":1}'] * 100
    assert pair.agree(good, good) == []
    assert pair.agree(odd, odd) == odd
    alone = 0
    while pair.agree(good, good) == good:
        alone += 1
    assert alone == 32
    assert pair.agree(good, good) == []


# --- Where values lie -----------------------------------------------------------------------------


def test_nothing_is_read_behind_the_end_of_the_memory() -> None:
    with before_closed_page() as put:
        for cut in (0, 1, 10, 20):
            values = records(30)
            values[-1] = values[-1][: len(values[-1]) - cut]
            array = array_of(values, put(b"".join(values)), pa.binary())
            Pair(REQUIRED).agree(values, array)


def test_a_value_never_goes_on_in_its_neighbour() -> None:
    whole = b'{"user":"u1","amount":12,"x":[{"a":"b"},1.5,true]}'
    pair = Pair(REQUIRED)
    for cut in range(len(whole)):
        values = [whole, whole[:cut], whole[cut:], whole]
        pair.start_over()
        pair.agree(values, pa.array(values, pa.binary()))


def test_decoding_does_not_change_what_was_decoded_before() -> None:
    decoder = Json(REQUIRED).decoder()
    first = decoder.decode(pa.array(records(500), pa.binary())).batch
    seen = first.to_pylist()
    decoder.decode(pa.array([b'{"user":"XXXXXXXXXXXX","amount":0}'] * 800, pa.binary()))
    assert first.to_pylist() == seen
