"""Rows put together by key, as a state of each kind keeps them; and what can't be put together."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.errors import UsageError
from onceflow.runtime.state_tables.rows_of_keys import grouped


def by_key(rows: dict[str, list[Any]], kind: str) -> dict[Any, Any]:
    keys, values = grouped(pa.table(rows), ["user"], kind, "it")
    return dict(zip(keys.column("user").to_pylist(), values.to_pylist(), strict=True))


def test_values_elements_and_entries() -> None:
    assert by_key({"value": [1, 2], "user": ["a", None]}, "value") == {"a": 1, None: 2}
    fields = {"n": [1], "user": ["a"], "s": ["x"]}
    assert by_key(fields, "value") == {"a": {"n": 1, "s": "x"}}
    elements = {"user": ["a", "b", "a", "a"], "position": [2, 0, 0, 1], "value": [30, 9, 10, 20]}
    assert by_key(elements, "list") == {"a": [10, 20, 30], "b": [9]}
    entries = {"user": ["a", "b", "a"], "map_key": ["x", "x", "y"], "value": [1, 2, 3]}
    assert by_key(entries, "map") == {
        "a": [{"key": "x", "value": 1}, {"key": "y", "value": 3}],
        "b": [{"key": "x", "value": 2}],
    }


REFUSED: list[tuple[dict[str, list[Any]], str, str]] = [
    ({"user": ["a", "a"], "value": [1, 2]}, "value", r"it has 2 rows of the key {'user': 'a'}: give one for"),
    ({"usr": ["a"], "value": [1]}, "value", r"needs a column 'user' \(did you mean 'usr'\?\): give"),
    ({"user": ["a"]}, "value", "needs a column besides the key's: name it 'value', or give the fields"),
    ({"user": ["a"], "value": [1]}, "map", "needs a column 'map_key': give the key's columns, map_key and"),
    ({"user": ["a"], "value": [1]}, "lst", r"no kind 'lst' \(did you mean 'list'\?\); use value, list, map"),
    (
        {"user": [[1]], "value": [1]},
        "value",
        "column 'user' is a list<.*>, which can't be a key: use another",
    ),
    (
        {"user": ["a", "a"], "map_key": ["x", "x"], "value": [1, 2]},
        "map",
        "2 rows of the key {'user': 'a', 'map_key': 'x'}",
    ),
]


@pytest.mark.parametrize(("rows", "kind", "sentence"), REFUSED)
def test_what_is_no_such_state_is_refused(rows: dict[str, list[Any]], kind: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        by_key(rows, kind)
