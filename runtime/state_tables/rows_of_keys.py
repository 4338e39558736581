"""Rows as a user has them, one for each value, element or entry, as a column with one place for each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.errors import UsageError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.records import Indices
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.hashing import CHECK_SEED, hash_keys, is_hashable
from onceflow.runtime.state_tables.tight_types import tight

KINDS = {"value": ("value",), "list": ("position", "value"), "map": ("map_key", "value")}
"""The kinds of state that can be written, and their columns; of a value it may be other columns."""
_IDENTITY = np.dtype([("hash", np.uint64), ("check", np.uint64)])


def grouped(rows: pa.Table, keys: Sequence[str], kind: str, where: str) -> tuple[pa.RecordBatch, pa.Array]:
    """The keys, each once, and what is kept of each, as a state of this kind keeps it. Raises UsageError for
    columns that are not there, keys that can't be keys, and keys or entries that are there twice."""
    _check(rows, keys, kind, where)
    batch = one_batch(rows)
    of_keys = batch.select(list(keys))
    unique, first, group = np.unique(identities(of_keys), return_index=True, return_inverse=True)
    counts = np.bincount(group, minlength=len(unique))
    distinct = of_keys.take(pa.array(first))
    if kind == "value":
        _check_once(counts, distinct, where)
        return distinct, tight(_value(batch, keys)).take(pa.array(first))
    if kind == "list":
        order = np.lexsort((batch.column("position").to_numpy(zero_copy_only=False), group))
        items: pa.Array = batch.column("value")
    else:
        _check_entries(batch, keys, where)
        order = np.argsort(group, kind="stable")
        entry = [batch.column("map_key"), batch.column("value")]
        items = pa.StructArray.from_arrays(entry, names=["key", "value"])
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    of = pa.list_(pa.field("item", items.type))
    return distinct, tight(pa.ListArray.from_arrays(pa.array(offsets), items.take(pa.array(order)), type=of))


def identities(keys: pa.RecordBatch) -> npt.NDArray[Any]:
    """Both hashes of each key: what a table goes by."""
    found = np.empty(keys.num_rows, _IDENTITY)
    found["hash"] = hash_keys(keys, keys.schema.names)
    found["check"] = hash_keys(keys, keys.schema.names, CHECK_SEED)
    return found


def places(of: npt.NDArray[Any], unique: npt.NDArray[Any]) -> Indices:
    """Where each of `unique` is in `of`; -1: nowhere."""
    found = np.full(len(unique), -1, np.int64)
    found[np.searchsorted(unique, of)] = np.arange(len(of))
    return found


def _value(batch: pa.RecordBatch, keys: Sequence[str]) -> pa.Array:
    names = [name for name in batch.schema.names if name not in keys]
    if names == ["value"]:
        return batch.column("value")
    return pa.StructArray.from_arrays([batch.column(name) for name in names], names=names)


def _check(rows: pa.Table, keys: Sequence[str], kind: str, where: str) -> None:
    if kind not in KINDS:
        raise UsageError(f"{where}: there is no kind {kind!r}{nearest(kind, KINDS)}; use {', '.join(KINDS)}")
    names = rows.schema.names
    wanted = list(keys) + ([] if kind == "value" else list(KINDS[kind]))
    for name in wanted:
        if name not in names:
            raise UsageError(
                f"{where} needs a column {name!r}{nearest(name, names)}: give the key's columns"
                + ("" if kind == "value" else f", {' and '.join(KINDS[kind])}")
            )
    if kind == "value" and len(names) == len(keys):
        raise UsageError(f"{where} needs a column besides the key's: name it 'value', or give the fields")
    if not keys:
        raise UsageError(f"{where} needs a key: name its columns by keys=")
    for name in keys:
        if not is_hashable(rows.schema.field(name).type):
            of = rows.schema.field(name).type
            raise UsageError(f"{where}: column {name!r} is a {of}, which can't be a key: use another column")


def _check_once(counts: npt.NDArray[Any], keys: pa.RecordBatch, where: str) -> None:
    if (twice := np.flatnonzero(counts > 1)).size:
        key = keys.slice(int(twice[0]), 1).to_pylist()[0]
        raise UsageError(f"{where} has {counts[twice[0]]} rows of the key {key}: give one for each key")


def _check_entries(batch: pa.RecordBatch, keys: Sequence[str], where: str) -> None:
    if is_hashable(batch.schema.field("map_key").type):
        entries = identities(batch.select([*keys, "map_key"]))
        _, first, counts = np.unique(entries, return_index=True, return_counts=True)
        _check_once(counts, batch.select([*keys, "map_key"]).take(pa.array(first)), where)
