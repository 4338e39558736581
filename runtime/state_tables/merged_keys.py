"""Rows of a process function under new keys: one for each, those that meet merged by the user's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import UsageError
from onceflow.runtime.records import Indices
from onceflow.runtime.state.description import StatePart
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.state_tables.rows_of_keys import identities
from onceflow.runtime.types.user_functions import function_name

Merge = Callable[[Any, list[dict[str, Any]]], Mapping[str, Any]]
_TIMERS = ("timers", "processing_timers")
_EXPIRIES = ("expires", "processing_expires")


def merged_rows(
    rows: pa.RecordBatch,
    old: pa.RecordBatch,
    new: pa.RecordBatch,
    parts: Sequence[StatePart],
    merge: Merge | None,
    operator: str,
) -> pa.RecordBatch:
    """The rows under their new keys, each key once."""
    _, first, group, counts = np.unique(
        identities(new), return_index=True, return_inverse=True, return_counts=True
    )
    met = np.flatnonzero(counts > 1)
    by_key = np.argsort(group, kind="stable")
    ends = np.cumsum(counts)
    groups = [_in_order(old, by_key[ends[n] - counts[n] : ends[n]]) for n in met]
    if len(met) and merge is None:
        shown = [old.slice(int(row), 1).to_pylist()[0] for row in groups[0][:2]]
        raise UsageError(
            f"operator {operator!r}: the keys {shown[0]} and {shown[1]} both become "
            f"{new.slice(int(groups[0][0]), 1).to_pylist()[0]}, as {int(counts[met].sum())} keys meet in "
            f"{len(met)}: give a merge function, or a key that keeps them apart"
        )
    kept = {
        name: column.take(pa.array(first))
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    kept["key"] = pa.StructArray.from_arrays(
        new.take(pa.array(first)).columns, fields=[f.with_nullable(True) for f in new.schema]
    )
    if merge is not None and len(met):
        kept["state"] = _states(rows, new, groups, met, kept["state"], parts, merge, operator)
        for name in rows.schema.names:
            if name in _TIMERS:
                kept[name] = _timers(rows.column(name), groups, met, kept[name])
            elif name in _EXPIRIES:
                kept[name] = _expiries(rows.column(name), groups, met, kept[name], operator)
    del kept[KEY_GROUP_COLUMN]
    return pa.RecordBatch.from_arrays(list(kept.values()), names=list(kept))


def _in_order(old: pa.RecordBatch, rows: Indices) -> Indices:
    """These rows by their old keys, so that what a merge gets does not hang on how state was dealt out."""
    keys = old.take(pa.array(rows)).to_pylist()
    order = sorted(range(len(rows)), key=lambda n: [(v is not None, v) for v in keys[n].values()])
    return rows[order]


def _states(
    rows: pa.RecordBatch,
    new: pa.RecordBatch,
    groups: Sequence[Indices],
    met: Indices,
    first: pa.StructArray,
    parts: Sequence[StatePart],
    merge: Merge,
    operator: str,
) -> pa.StructArray:
    """What is kept of each new key: of those that meet what the user's function says."""
    kinds = {part.name: part.kind for part in parts}
    who = f"operator {operator!r}: {function_name(merge)}"
    struct, result = rows.column("state"), first.to_pylist()
    for place, mine in zip(met.tolist(), groups, strict=True):
        key = new.slice(int(mine[0]), 1).to_pylist()[0]
        given = [_shown(each, kinds) for each in struct.take(pa.array(mine)).to_pylist()]
        try:
            made = merge(next(iter(key.values())) if len(key) == 1 else key, given)
        except Exception as error:
            raise UsageError(f"{who} failed on {key}: {type(error).__name__}: {error}: correct it") from error
        if not isinstance(made, Mapping) or set(made) - set(kinds):
            _refuse_result(who, key, kinds)
        result[place] = {name: _kept(made.get(name), kinds.get(name, "")) for name in result[place]}
    try:
        return pa.array(result, struct.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise UsageError(
            f"{who} returned what its states can't have ({error}): give what they are declared for"
        ) from error


def _refuse_result(who: str, key: Any, kinds: Mapping[str, str]) -> NoReturn:
    raise UsageError(f"{who} returned no states for {key}: give a dictionary with some of {', '.join(kinds)}")


def _shown(state: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: {e["key"]: e["value"] for e in value}
        if value is not None and kinds.get(name) == "map"
        else value
        for name, value in state.items()
    }


def _kept(value: Any, kind: str) -> Any:
    if kind == "map" and value is not None:
        return [{"key": key, "value": each} for key, each in value.items()] or None
    return (list(value) or None) if kind == "list" and value is not None else value


def _timers(times: pa.Array, groups: Sequence[Indices], met: Indices, first: pa.Array) -> pa.Array:
    result = first.to_pylist()
    for place, mine in zip(met.tolist(), groups, strict=True):
        result[place] = sorted(
            {time for each in times.take(pa.array(mine)).to_pylist() for time in each or ()}
        )
    return pa.array(result, times.type)


def _expiries(
    times: pa.StructArray, groups: Sequence[Indices], met: Indices, first: pa.StructArray, operator: str
) -> pa.StructArray:
    """A value that was merged lives as long as the one of them that lives longest."""
    for field in times.type:
        if pa.types.is_list(field.type):
            raise UsageError(
                f"operator {operator!r}: keys meet, and what is in state {field.name!r} expires one by one, "
                "which a merge can't say: give a key that keeps them apart, or begin that state anew"
            )
    result = first.to_pylist()
    for place, mine in zip(met.tolist(), groups, strict=True):
        found = [each for each in times.take(pa.array(mine)).to_pylist() if each is not None]
        result[place] = {
            field.name: max(
                (each[field.name] for each in found if each[field.name] is not None), default=None
            )
            for field in times.type
        }
    return pa.array(result, times.type)
