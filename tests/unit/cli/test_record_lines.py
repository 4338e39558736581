"""Lines of records: what is printed is read back as it was; what is no record is named with its line."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.cli.record_lines import (
    Line,
    LineReader,
    UndecodedError,
    as_json_line,
    pretty_value,
    value_text,
)
from onceflow.runtime.errors import UsageError

BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)


@dataclass(frozen=True)
class Message:
    """A message as confluent_kafka hands it out."""

    _key: bytes | None
    _value: bytes | None
    _headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    _timestamp: int = 1_700_000_000_123

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 17


def reader(**given: Any) -> LineReader:
    nothing = {"key": None, "key_field": None, "key_separator": None, "headers": {}}
    return LineReader(**{**nothing, "as_json": False, "values": None, **given})


@given(BYTES, BYTES, st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3))
def test_what_is_printed_is_read_back_as_it_was(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = as_json_line(Message(key, value, headers), None)
    again = reader(as_json=True).read(1, line.encode())
    assert (again.key, again.value, again.headers) == (key, value, headers)
    assert again.timestamp_ms == 1_700_000_000_123


def test_keys_of_lines() -> None:
    assert reader().read(1, b"a b\r\n") == Line(None, b"a b", [])
    separated = reader(key_separator="|", headers={"trace": "x"}).read(1, b"k|a|b\n")
    assert (separated.key, separated.value, separated.headers) == (b"k", b"a|b", [("trace", b"x")])
    assert reader(key="all").read(1, b"a\n").key == b"all"
    of_field = reader(key_field="user")
    assert of_field.read(1, b'{"user": "ann", "n": 1}\n').key == b"ann"
    assert of_field.read(1, b'{"user": 7}').key == b"7"
    assert of_field.read(1, b'{"user": null}').key is None


@pytest.mark.parametrize(
    ("given", "line", "sentence"),
    [
        ({"key_field": "user"}, b"{", "line 3 is no JSON"),
        ({"key_field": "user"}, b'{"n": 1}', "line 3 has no field 'user' to be its key"),
        ({"key_separator": "|"}, b"ab", "line 3 has no '|' between key and value: 'ab'"),
        ({"as_json": True}, b"[1]", "line 3 is not a JSON object with key, value and headers"),
        ({"as_json": True}, b'{"value_base64": "?"}', "line 3: value_base64 is no base64"),
        ({"as_json": True}, b'{"headers": [1]}', "line 3: headers must be pairs of a name and a text"),
        ({"as_json": True}, b'{"timestamp": "2026-01-01"}', "line 3: timestamp 2026-01-01 has no time zone"),
        ({"as_json": True}, b'{"timestamp": {}}', "line 3: timestamp {} is neither ms nor a date and time"),
    ],
)
def test_what_is_no_record_is_named_with_its_line(given: Any, line: bytes, sentence: str) -> None:
    with pytest.raises(UsageError, match="^" + sentence.replace("|", r"\|").replace("[", r"\[")):
        reader(**given).read(3, line)


def test_only_one_thing_says_what_the_key_is() -> None:
    with pytest.raises(UsageError, match="give one of --key, --key-field, --key-separator and --json"):
        reader(key="a", key_field="b")


def test_values_for_eyes() -> None:
    assert value_text(None, None) == "null"
    assert value_text("ä".encode(), None) == "ä"
    assert value_text(b"\xff", None) == "base64:/w=="
    assert pretty_value(b'{"a": 1}', None) == '{"a": 1}'
    assert pretty_value(b"plain", None) is None
    assert pretty_value(None, None) is None


class Numbers:
    """Values that are numbers."""

    def decode(self, raw: bytes) -> Any:
        if not raw.isdigit():
            raise UndecodedError(f"{raw!r} is no number")
        return int(raw)

    def encode(self, value: Any, where: str) -> bytes:
        return str(int(value)).encode()


def test_what_can_not_be_decoded_is_marked_and_written_again_as_it_was() -> None:
    numbers, junk = Numbers(), Message(b"k", b"junk")
    assert json.loads(as_json_line(Message(b"k", b"7"), numbers))["value"] == 7
    for decoding in (as_json_line, lambda each, by: value_text(each.value(), by)):
        with pytest.raises(UndecodedError):
            decoding(junk, numbers)
    line = as_json_line(junk, None, is_undecoded=True)
    assert json.loads(line)["value_base64"] == "anVuaw=="
    assert reader(as_json=True, values=numbers).read(1, line.encode()).value == b"junk"
    assert value_text(b"junk", None, is_undecoded=True) == "base64:anVuaw=="


def test_a_json_value_is_written_as_compact_as_it_was_given() -> None:
    assert json.loads(reader(as_json=True).read(1, b'{"value": {"a": [1]}}').value or b"") == {"a": [1]}
