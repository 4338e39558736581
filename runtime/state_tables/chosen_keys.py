"""The keys that a reader asks for: which key groups they are in, and which rows are theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import UsageError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.records import Mask
from onceflow.runtime.state.hashing import CHECK_SEED, hash_keys
from onceflow.runtime.state.key_groups import key_groups_of

Key = Any
"""The value of the only key column; or a mapping with a value for each of them."""


class ChosenKeys:
    """Some keys, by both their hashes, which are the identity that a table goes by."""

    def __init__(self, keys: Iterable[Key], columns: pa.Schema, max_parallelism: int, where: str) -> None:
        """`columns`: of the key, in their order. Raises UsageError for what is not a key of these columns."""
        rows = [_values(key, columns.names, where) for key in keys]
        arrays = [_array([row[place] for row in rows], field, where) for place, field in enumerate(columns)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=columns)
        self.batch = batch
        """The keys in columns, in the order in which they were given."""
        self.hashes = hash_keys(batch, columns.names)
        """The first hash of each key, in the order in which they were given."""
        self.checks = hash_keys(batch, columns.names, CHECK_SEED)
        """The second hash of each key."""
        self._identities = set(zip(self.hashes.tolist(), self.checks.tolist(), strict=True))
        self.key_groups = frozenset(key_groups_of(self.hashes, max_parallelism).tolist())
        """The key groups that have them."""

    def of(self, keys: pa.RecordBatch) -> Mask:
        """Which of these rows, of key columns alone, have one of the keys."""
        hashes = hash_keys(keys, keys.schema.names)
        chosen = np.isin(hashes, self.hashes)
        rows = np.flatnonzero(chosen)
        if len(rows):
            some = keys.take(pa.array(rows))
            checks = hash_keys(some, some.schema.names, CHECK_SEED).tolist()
            pairs = zip(hashes[rows].tolist(), checks, strict=True)
            chosen[rows] = [pair in self._identities for pair in pairs]
        return chosen


def key_of_text(text: str, columns: Sequence[str]) -> Key:
    """A key as a command and Spark's option `key` take it: the value of the only column, or a JSON object
    with a value for each."""
    if len(columns) == 1 and not text.lstrip().startswith("{"):
        return text
    try:
        key = json.loads(text)
    except ValueError:
        key = None
    if isinstance(key, dict):
        return key
    if len(columns) == 1:
        return text
    raise UsageError(f"the key {text!r} has to be a JSON object with {', '.join(columns)}: write it so")


def _values(key: Key, names: Sequence[str], where: str) -> list[Any]:
    if not isinstance(key, Mapping):
        if len(names) == 1:
            return [key]
        raise UsageError(f"a key of {where} has the columns {', '.join(names)}: give a dictionary of them")
    for name in key:
        if name not in names:
            raise UsageError(f"a key of {where} has no column {name!r}{nearest(name, names)}; use {names}")
    if missing := [name for name in names if name not in key]:
        raise UsageError(f"a key of {where} needs {', '.join(missing)} too: give a value for each column")
    return [key[name] for name in names]


def _array(values: Sequence[Any], field: pa.Field, where: str) -> pa.Array:
    is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    try:
        if not is_text and any(isinstance(value, str) for value in values):
            return pa.array([None if v is None else str(v) for v in values], pa.string()).cast(field.type)
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise UsageError(
            f"{values[0] if len(values) == 1 else list(values)!r} is no {field.type}, as the key column "
            f"{field.name!r} of {where} is: give values of this type"
        ) from error
