"""Live tables: which states can be asked, how keys find their slot, and how answers are put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.errors import UsageError
from onceflow.runtime.state.description import KeyColumn, StateDescription, StatePart
from onceflow.runtime.state.key_groups import key_groups_of, subtask_of_key_group
from onceflow.runtime.state_tables.live import (
    KEYS_MAX,
    as_bytes,
    by_key,
    keys_of_question,
    live_shape,
    of_bytes,
    rows_of,
    slots_of,
)
from onceflow.runtime.state_tables.reader import UnknownTableError

USER = (KeyColumn("user", "string"),)
PARTS = (
    StatePart("n", "value", "int64"),
    StatePart("rules", "broadcast", "list<struct<key: string, value: int64>>"),
)
STATES = {
    "totals": StateDescription("process", "keys", USER, PARTS),
    "windows": StateDescription("window aggregate", "windows", USER, (StatePart("n", "count", "int64"),)),
    "filter": None,
}
SHAPE = live_shape(STATES, "totals", "n")


@pytest.mark.parametrize(
    ("uid", "state", "kind", "said"),
    [
        (
            "total",
            "n",
            UnknownTableError,
            r"keeps no state for 'total' \(did you mean 'totals'\?\); use one of",
        ),
        ("filter", "n", UnknownTableError, "keeps no state for 'filter'"),
        ("totals", "m", UnknownTableError, "has no state 'm'"),
        ("totals", "rules", UsageError, "has no key"),
    ],
)
def test_what_can_not_be_asked_is_refused(uid: str, state: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said) as refused:
        live_shape(STATES, uid, state)
    assert type(refused.value) is kind


def test_keys_are_columns_and_not_too_many() -> None:
    assert keys_of_question(SHAPE, ["a", "b"], are_texts=False).to_pydict() == {"user": ["a", "b"]}
    assert keys_of_question(SHAPE, ['{"user": "a"}'], are_texts=True).to_pydict() == {"user": ["a"]}
    with pytest.raises(UsageError, match="has no column 'usr'"):
        keys_of_question(SHAPE, [{"usr": "a"}], are_texts=False)
    assert keys_of_question(SHAPE, ["a"] * KEYS_MAX, are_texts=False).num_rows == KEYS_MAX
    with pytest.raises(UsageError, match="1,001 keys: ask for 1,000 at most"):
        keys_of_question(SHAPE, ["a"] * (KEYS_MAX + 1), are_texts=False)


@pytest.mark.parametrize("parallelism", [1, 3, 4, 7])
def test_a_key_is_asked_of_the_slot_that_owns_its_group(parallelism: int) -> None:
    hashes = np.random.default_rng(1).integers(0, 1 << 64, 500, dtype=np.uint64)
    groups = key_groups_of(hashes, 12).tolist()
    owners = {
        int(place): slot for slot, places in slots_of(hashes, 12, parallelism).items() for place in places
    }
    assert owners == {n: subtask_of_key_group(12, parallelism, group) for n, group in enumerate(groups)}


def test_rows_of_several_slots_are_put_to_their_keys() -> None:
    def row(user: str, n: int | None) -> pa.RecordBatch:
        state = pa.array([{"n": n}], pa.struct([("n", pa.int64())]))
        key = pa.array([{"user": user}])
        return pa.record_batch({"key_group": pa.array([1], pa.uint16()), "key": key, "state": state})

    slots: list[pa.Table] = [rows_of(SHAPE, [row("b", 2), row("c", None)]), rows_of(SHAPE, [row("a", 1)])]
    slots.append(rows_of(SHAPE, []))
    sent = [of_bytes(as_bytes(table)) for table in slots]
    keys = keys_of_question(SHAPE, ["a", "x", "b", "c", "a"], are_texts=False)
    found: list[list[dict[str, Any]]] = by_key(sent, keys)
    a, b = {"user": "a", "value": 1}, {"user": "b", "value": 2}
    assert found == [[a], [], [b], [], [a]]
    assert by_key([pa.table({})], keys) == [[]] * 5
