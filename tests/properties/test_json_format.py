"""Json against a slow twin on top of the standard library, on hostile input; and written rows read back.

The twin parses with json.loads, keeps every pair of an object, and checks each field by hand. Whatever
the values are, both must find the same good rows with the same contents, and the same bad ones.
"""

from __future__ import annotations

import base64
import json
import math
import types
import typing
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.connectors.formats import Json


@dataclass
class Part:
    name: str
    size: int | None = None


@dataclass
class Thing:
    text: str
    number: int
    ratio: float
    flag: bool | None
    blob: bytes = b"default"
    counts: list[int] = field(default_factory=list)
    part: Part | None = None
    parts: list[Part] = field(default_factory=lambda: [Part("only", 1)])
    by_name: dict[str, float] = field(default_factory=dict)


# --- The twin -----------------------------------------------------------------------------------


class Bad(Exception):
    """The value is no good."""


class IntText(str):
    """A number without fraction and exponent, as it was written."""


class FloatText(str):
    """Any other number."""


@dataclass
class Pairs:
    """An object as it was written: names may come twice."""

    pairs: list[tuple[str, Any]]


def _refuse(text: str) -> Any:
    raise Bad(f"{text} is no JSON")


def _no_surrogates(value: Any) -> None:
    if isinstance(value, str):
        if any(0xD800 <= ord(character) <= 0xDFFF for character in value):
            raise Bad("a lone surrogate")
    elif isinstance(value, list):
        for item in value:
            _no_surrogates(item)
    elif isinstance(value, Pairs):
        for name, item in value.pairs:
            _no_surrogates(name)
            _no_surrogates(item)


def twin(value: bytes, errors: str) -> dict[str, Any]:
    """The row that a value means. Raises Bad."""
    try:
        parsed = json.loads(
            value.decode("utf-8", errors),
            object_pairs_hook=Pairs,
            parse_int=IntText,
            parse_float=FloatText,
            parse_constant=_refuse,
        )
    except ValueError as error:
        raise Bad(str(error)) from error
    _no_surrogates(parsed)
    return _record(parsed, Thing)


def _record(parsed: Any, of: Any) -> dict[str, Any]:
    if not isinstance(parsed, Pairs):
        raise Bad("not an object")
    hints = typing.get_type_hints(of)
    found = {name: _value(value, hints[name]) for name, value in parsed.pairs if name in hints}
    for f in fields(of):
        if f.name not in found:
            if f.default is MISSING and f.default_factory is MISSING:
                raise Bad(f"{f.name} is missing")
            default = f.default if f.default_factory is MISSING else f.default_factory()
            found[f.name] = _plain(default)
    return {name: found[name] for name in hints}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return list(value.items())
    return {f.name: getattr(value, f.name) for f in fields(value)} if isinstance(value, Part) else value


def _value(parsed: Any, hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        return None if parsed is None else _value(parsed, typing.get_args(hint)[0])
    args = typing.get_args(hint)
    if typing.get_origin(hint) is list and isinstance(parsed, list):
        return [_value(item, args[0]) for item in parsed]
    if typing.get_origin(hint) is dict and isinstance(parsed, Pairs):
        return list({name: _value(item, args[1]) for name, item in parsed.pairs}.items())
    if is_dataclass(hint):
        return _record(parsed, hint)
    if hint in (str, bytes) and type(parsed) is str:
        return str(parsed) if hint is str else _from_base64(parsed)
    if hint is bool and isinstance(parsed, bool):
        return parsed
    return _number(parsed, hint)


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError as error:
        raise Bad(str(error)) from error


def _number(parsed: Any, hint: Any) -> Any:
    is_int = isinstance(parsed, IntText)
    if hint is int and is_int and len(parsed) < 100 and -(1 << 63) <= int(parsed) < 1 << 63:
        return int(parsed)
    if hint is float and (is_int or isinstance(parsed, FloatText)) and math.isfinite(float(parsed)):
        return 0.0 if parsed == "-0" else float(parsed)  # an integer's zero has no sign
    raise Bad(f"{parsed!r} is no {hint}")


# --- Hostile values -----------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers().map(str),
    st.sampled_from([(1 << 63) - 1, 1 << 63, -(1 << 63), -(1 << 63) - 1, 1 << 64, 10**400]).map(str),
    st.floats().map(json.dumps),
    st.sampled_from(
        ["1.0", "1e3", "-0", "-0.0", "01", "1.", ".5", "+1", "1e400", "-1E-400", "0x1", "--1", "1e"]
    ),
)
STRINGS = st.one_of(
    st.text().map(json.dumps),
    st.text(st.characters(codec="utf-8")).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.binary(max_size=9).map(lambda b: json.dumps(base64.b64encode(b).decode())),
    st.sampled_from(
        ['"\\ud800"', '"\\udc00x"', '"\\ud83d\\ude00"', '"\\u00"', '"a\tb"', '"\\q"', '"YQ"', '"']
    ),
)
LEAVES = st.one_of(
    NUMBERS, STRINGS, st.sampled_from(["null", "true", "false", "nul", "", "NaN", "-Infinity"])
)
NAMES = st.one_of(
    st.sampled_from([f.name for f in fields(Thing)] + ["name", "size", "extra", "te\\u0078t"]).map(
        lambda name: f'"{name}"'
    ),
    STRINGS,
)


def _objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(NAMES, values).map(":".join), max_size=6)
    return pairs.map(lambda them: "{" + ",".join(them) + "}")


VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda them: f"[{','.join(them)}]"), _objects(inner)
    ),
    max_leaves=12,
)
PARTS = st.fixed_dictionaries({"name": STRINGS}, optional={"size": NUMBERS}).map(
    lambda part: "{" + ",".join(f'"{name}":{value}' for name, value in part.items()) + "}"
)


@st.composite
def nearly_good(draw: st.DrawFn) -> str:
    """An object with the right fields, most of them of the right type, in any order, with strangers."""
    right = {
        "text": STRINGS,
        "number": st.integers(-(1 << 64), 1 << 64).map(str),
        "ratio": NUMBERS,
        "flag": st.sampled_from(["true", "false", "null"]),
        "blob": st.binary(max_size=9).map(lambda b: json.dumps(base64.b64encode(b).decode())),
        "counts": st.lists(st.integers(-(1 << 63), (1 << 63) - 1).map(str), max_size=3).map(
            lambda them: f"[{','.join(them)}]"
        ),
        "part": PARTS,
        "parts": st.lists(PARTS, max_size=2).map(lambda them: f"[{','.join(them)}]"),
        "by_name": st.dictionaries(STRINGS, st.floats(allow_nan=False).map(str), max_size=2).map(
            lambda them: "{" + ",".join(f"{name}:{value}" for name, value in them.items()) + "}"
        ),
    }
    pairs = []
    for name, good in right.items():
        if draw(st.integers(0, 9)) or name in ("text", "ratio"):
            pairs.append(f'"{name}":{draw(good if draw(st.integers(0, 9)) else VALUES)}')
    pairs += draw(st.lists(st.tuples(NAMES, VALUES).map(":".join), max_size=2))
    space = draw(st.sampled_from(["", " ", "\n\t\r ", "\x0b"]))
    return space + "{" + f",{space}".join(draw(st.permutations(pairs))) + "}" + space


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A nearly good value with some of its bytes cut, doubled or replaced."""
    value = draw(nearly_good()).encode("utf-8", "surrogatepass")
    at = draw(st.integers(0, len(value)))
    skip = draw(st.integers(0, 3))
    return value[:at] + draw(st.binary(max_size=3)) + value[at + skip :]


HOSTILE = st.one_of(
    nearly_good().map(lambda text: text.encode("utf-8", "surrogatepass")),
    nearly_good().map(lambda text: text.encode("utf-8", "surrogatepass")),
    damaged(),
    VALUES.map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=20),
)


def expect(value: bytes) -> dict[str, Any] | None:
    try:
        return twin(value, "strict")
    except Bad:
        return None


def same(row: dict[str, Any], expected: dict[str, Any]) -> bool:
    return repr(row) == repr(expected)  # tells -0.0 from 0.0, and 1 from 1.0 and True


DECODER = Json(Thing).decoder()


@settings(max_examples=300, deadline=None)
@given(st.lists(HOSTILE, max_size=6))
@example([b'{"text":"","number":1,"ratio":1,"flag":null,"counts":[1,null]}'])
@example([b"", b"{}", b'{"text":"","number":1,"ratio":1,"flag":null}'])
def test_the_fast_decoder_agrees_with_the_slow_twin(values: list[bytes]) -> None:
    decoded = DECODER.decode(values)
    good = list(range(len(values))) if decoded.rows is None else decoded.rows.tolist()
    assert sorted([*good, *(bad.row for bad in decoded.bad)]) == list(range(len(values)))
    rows = dict(zip(good, decoded.batch.to_pylist(), strict=True))
    for index, value in enumerate(values):
        try:
            value.decode()
        except UnicodeDecodeError:
            # Bytes that are no text may stand where nobody looks, and nowhere else.
            if index in rows:
                assert same(rows[index], twin(value, "replace"))
            continue
        expected = expect(value)
        assert (index in rows) == (expected is not None), value
        if expected is not None:
            assert same(rows[index], expected), value


@settings(max_examples=150, deadline=None)
@given(st.lists(HOSTILE, max_size=6))
def test_a_value_means_the_same_alone_and_among_others(values: list[bytes]) -> None:
    together = DECODER.decode(values).batch.to_pylist()
    alone = [row for value in values for row in DECODER.decode([value]).batch.to_pylist()]
    assert repr(together) == repr(alone)


# --- Rows written and read back -------------------------------------------------------------------

COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), st.text(st.characters(codec="utf-8"))),
    (pa.large_string(), st.text(st.characters(codec="utf-8"))),
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.float32(), st.floats(allow_nan=False, allow_infinity=False, width=32)),
    (pa.bool_(), st.booleans()),
    (pa.list_(pa.int64()), st.lists(st.none() | st.integers(-5, 5), max_size=3)),
    (
        pa.struct([("x", pa.int64()), ("y", pa.string())]),
        st.fixed_dictionaries(
            {"x": st.none() | st.integers(-5, 5), "y": st.none() | st.text('a"\\\x00é', max_size=3)}
        ),
    ),
    (pa.binary(), st.binary(max_size=5)),
]


NAME_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    chosen = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=5))
    count = draw(st.integers(0, 4))
    arrays = [
        pa.array(draw(st.lists(st.none() | values, min_size=count, max_size=count)), arrow)
        for arrow, values in chosen
    ]
    names = draw(st.lists(NAME_TEXT, min_size=len(arrays), max_size=len(arrays), unique=True))
    return pa.RecordBatch.from_arrays(arrays, names=names)


@settings(max_examples=300, deadline=None)
@given(batches(), st.integers(0, 2))
@example(pa.record_batch({"x": pa.array([float(np.finfo(np.float32).max)], pa.float32())}), 0)
def test_written_rows_are_read_back_by_the_standard_library_and_by_json(
    batch: pa.RecordBatch, skip: int
) -> None:
    batch = batch.slice(min(skip, batch.num_rows))
    encoded = Json().encoder(batch.schema).encode(batch).to_pylist()
    assert len(encoded) == batch.num_rows
    for value, row in zip(encoded, batch.to_pylist(), strict=True):
        parsed = json.loads(value.decode())
        assert list(parsed) == list(row)
        for name, cell in row.items():
            assert repr(_as_written(cell)) == repr(_as_read(parsed[name], batch.schema.field(name).type))
        assert value == json.dumps(parsed, separators=(",", ":"), ensure_ascii=False).encode() or _has_float(
            batch
        )
    if any(character in '"\\' or character < " " for character in "".join(batch.schema.names)):
        return  # such names can be written, not read
    again = Json(batch.schema).decoder().decode(encoded)
    assert not again.bad
    assert again.batch.equals(batch)


def _as_written(cell: Any) -> Any:
    return base64.b64encode(cell).decode() if isinstance(cell, bytes) else cell


def _as_read(value: Any, arrow: pa.DataType) -> Any:
    return float(np.float32(value)) if arrow == pa.float32() and value is not None else value


def _has_float(batch: pa.RecordBatch) -> bool:
    return any(pa.types.is_floating(f.type) for f in batch.schema)
