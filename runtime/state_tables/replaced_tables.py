"""The tables of reduces and windows, replaced by rows of a user's in a savepoint that is made of a base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import UsageError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.records import WATERMARK_MIN_MS, Int64s, Mask
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.state_tables.fitted_columns import fitted
from onceflow.runtime.state_tables.operator_rows import OperatorState, stored_rows
from onceflow.runtime.state_tables.rows_of_keys import identities
from onceflow.runtime.state_tables.shapes import Shape
from onceflow.runtime.state_tables.stored_schemas import stored_schema
from onceflow.runtime.state_tables.type_texts import type_of_text
from onceflow.runtime.state_tables.written_accumulators import check_values, value_type
from onceflow.runtime.state_tables.written_windows import Bounds, check_bounds, check_open, ends_of, reached

_STARTS: Mapping[str, tuple[str, ...]] = {
    "reduced": (),
    "windows": ("window_start",),
    "panes": ("pane_start",),
    "spans": ("window_start", "window_end"),
}
"""The tables that can be written, and the columns that say, with the key, which row it is."""
_OPTIONAL: Mapping[str, pa.DataType] = {"fired": pa.bool_(), "fired_ms": pa.int64()}
_OTHERS: Mapping[str, str] = {
    "counts": "windows of so many rows know by a number how full they are",
    "count_panes": "windows of so many rows know by a number how full they are",
    "rows": "a join knows of each row what it has met",
}
_ANEW = "give the operator a new uid, and let it begin anew or read its input again"


def replaced_table(
    store: CheckpointStore, manifest: CheckpointManifest, uid: str, state: str, rows: pa.Table,
    keys: Sequence[str], kind: str,
) -> OperatorState:  # fmt: skip
    """What the operator keeps if its table has these rows, and no others. Raises UsageError for an operator
    whose table can't be written, and for rows that the job could not have by then."""
    described = manifest.operators[uid]
    where = f"state {state!r} of {uid!r}"
    _check_operator(described, uid, state, kind, where)
    handles = [handle for handle in manifest.states if handle.uid == uid]
    form = _form(store, handles, uid, described)
    given = _columns(form, rows, keys, where)
    found = stored_rows(store, manifest, uid, described.table)
    base = None if found is None else _Rows.of_batch(one_batch(found), described.table)
    mine = _Rows(form.keys_of(given), [given[name] for name in form.starts], given)
    _check_once(mine, where)
    check_values(given["value"], described, None if base is None else base.named["value"], where)
    if KEY_GROUP_COLUMN in rows.schema.names and KEY_GROUP_COLUMN not in keys:
        _check_key_groups(rows, mine, manifest.max_parallelism, where)
    others: dict[str, pa.Array] = {}
    if described.windows is not None:
        reached_ms = reached((handle.meta for handle in handles), manifest.max_parallelism, mine.hashes)
        others = _checked_windows(described, mine, base, form, reached_ms, where)
    of_keys = pa.StructArray.from_arrays(
        mine.keys.columns, fields=[field.with_nullable(True) for field in mine.keys.schema]
    )
    starts = dict(zip(form.starts, mine.starts, strict=True))
    named = {"key": of_keys, **starts, **others, "value": given["value"]}
    batch = pa.RecordBatch.from_arrays(list(named.values()), names=list(named))
    return OperatorState(uid, described, batch, described.table)


def _check_operator(described: StateDescription, uid: str, state: str, kind: str, where: str) -> None:
    windows, table = described.windows, described.table
    if table not in _STARTS:
        reason = _OTHERS.get(table, "it keeps its rows in a form of its own")
        raise UsageError(f"the state of {uid!r}, a {described.kind}, can't be written: {reason}: {_ANEW}")
    if windows is not None and (windows.kind in ("own", "global") or windows.trigger or windows.is_by_clock):
        what = (
            "a trigger" if windows.trigger else "the clock" if windows.is_by_clock else "windows of its own"
        )
        raise UsageError(
            f"the state of {uid!r} can't be written: when its windows fire {what} says, which no row tells: "
            f"{_ANEW}"
        )
    for part in described.parts:
        if part.kind == "evicted_rows":
            raise UsageError(
                f"the state of {uid!r} can't be written: which rows stay an evictor says, and no row tells "
                f"what it has seen: {_ANEW}"
            )
        if part.codec:
            raise UsageError(
                f"the state of {uid!r} can't be written: {part.name!r} is kept as bytes by {part.codec}, "
                f"which are not checked here: {_ANEW}"
            )
    if state != table:
        raise UsageError(f"{uid!r} has no state {state!r}{nearest(state, [table])}: use {table!r}")
    if kind != "value":
        raise UsageError(f"{where} has a form of its own: leave kind={kind!r} out")


@dataclass(frozen=True, slots=True)
class _Form:
    """What columns the files of the table have, and what they are called in a reader's tables."""

    keys: pa.Schema
    starts: tuple[str, ...]
    value: pa.DataType
    optional: tuple[str, ...]
    """What the base's files have beside that."""
    names: Mapping[str, str]
    """A reader's name of each column but those of the key."""

    def keys_of(self, given: Mapping[str, pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [given[f"key {name}"] for name in self.keys.names], schema=self.keys
        )


def _form(
    store: CheckpointStore, handles: Sequence[StateHandle], uid: str, described: StateDescription
) -> _Form:
    table = described.table
    stored = stored_schema(store, handles, table)
    keys = pa.schema([pa.field(key.name, type_of_text(key.type)) for key in described.keys])
    starts = _STARTS[table]
    value, optional = value_type(described), tuple[str, ...]()
    if stored is not None:
        value = stored.field("value").type
        optional = tuple(name for name in _OPTIONAL if name in stored.names)
    extra = [name for name in _OPTIONAL if name in optional or (name, table) == ("fired", "spans")]
    inner = [*starts, *extra, "value"]
    own = Shape(uid, table, described.kind, table, described).own_names(inner, keys)
    return _Form(keys, starts, value, optional, dict(zip(inner, own, strict=True)))


def _columns(form: _Form, rows: pa.Table, keys: Sequence[str], where: str) -> dict[str, pa.Array]:
    """The columns by their names in the files, those of the key as `key NAME`, all of the base's types."""
    if list(keys) != form.keys.names:
        raise UsageError(f"{where}: the key is {list(keys)}, and in the base {form.keys.names}: give these")
    batch, found = one_batch(rows), {}
    names = batch.schema.names
    needed = [*form.keys.names, *(own for name, own in form.names.items() if name not in _OPTIONAL)]
    if missing := [name for name in needed if name not in names]:
        raise UsageError(f"{where} needs a column {missing[0]!r}{nearest(missing[0], names)}: give {needed}")
    known = {*form.keys.names, *form.names.values(), KEY_GROUP_COLUMN}
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"{where} has no column {unknown[0]!r}{nearest(unknown[0], needed)}: leave it out")
    for field in form.keys:
        of = batch.schema.field(field.name).type
        if of != field.type and not pa.types.is_null(of):
            raise UsageError(
                f"{where}: the key is {field.name} {of}, and in the base {field.type}: cast the columns"
            )
        found[f"key {field.name}"] = batch.column(field.name).cast(field.type)
    for name, own in form.names.items():
        if own in names:
            of = form.value if name == "value" else _OPTIONAL.get(name, pa.int64())
            found[name] = fitted(batch.column(own), of, f"column {own!r} of {where}")
    for name in form.starts:
        if found[name].null_count:
            raise UsageError(f"{where} has a null in {form.names[name]!r}: give a time in ms")
    return found


class _Rows:
    """Rows of a table: which they are, and all their columns."""

    def __init__(
        self, keys: pa.RecordBatch, starts: Sequence[pa.Array], named: Mapping[str, pa.Array]
    ) -> None:
        self.keys, self.starts, self.named = keys, starts, named
        of_keys = identities(keys)
        self.hashes = np.ascontiguousarray(of_keys["hash"])
        fields = [(name, of_keys[name]) for name in ("hash", "check")]
        fields += [(f"start {n}", start.to_numpy()) for n, start in enumerate(starts)]
        self.key_ids: npt.NDArray[Any] = of_keys
        self.ids: npt.NDArray[Any] = np.empty(
            keys.num_rows, np.dtype([(name, each.dtype) for name, each in fields])
        )
        for name, each in fields:
            self.ids[name] = each

    @classmethod
    def of_batch(cls, batch: pa.RecordBatch, table: str) -> _Rows:
        named = dict(zip(batch.schema.names, batch.columns, strict=True))
        keys = pa.RecordBatch.from_struct_array(batch.column("key"))
        return cls(keys, [named[name] for name in _STARTS[table]], named)

    def __len__(self) -> int:
        return int(self.keys.num_rows)


def _check_once(rows: _Rows, where: str) -> None:
    _, first, counts = np.unique(rows.ids, return_index=True, return_counts=True)
    if (twice := np.flatnonzero(counts > 1)).size:
        row = int(first[twice[0]])
        key = rows.keys.slice(row, 1).to_pylist()[0]
        at = "".join(f", {start[row].as_py()}" for start in rows.starts)
        raise UsageError(f"{where} has {counts[twice[0]]} rows of {key}{at}: give one")


def _check_key_groups(rows: pa.Table, mine: _Rows, max_parallelism: int, where: str) -> None:
    given = one_batch(rows.select([KEY_GROUP_COLUMN])).column(0)
    groups = pa.array(key_groups_of(mine.hashes, max_parallelism))
    if not given.cast(pa.int64()).equals(groups.cast(pa.int64())):
        raise UsageError(
            f"{where} has rows whose key_group is not that of their key among {max_parallelism}: leave the "
            "column out, since the key says it"
        )


def _checked_windows(
    described: StateDescription, mine: _Rows, base: _Rows | None, form: _Form, reached_ms: Int64s, where: str
) -> dict[str, pa.Array]:
    """The columns that say what has fired."""
    windows = described.windows
    assert windows is not None
    starts, *ends = (start.to_numpy() for start in mine.starts)
    in_base = np.zeros(len(mine), np.bool_) if base is None else np.isin(mine.ids, base.ids)
    _, numbers = np.unique(mine.key_ids, return_inverse=True)
    ends_ms = ends_of(windows, described.table, starts, ends[0] if ends else None)
    bounds = Bounds(numbers, starts, ends_ms, in_base, mine.keys)
    check_bounds(windows, described.table, bounds, where)
    if described.table != "spans":
        check_open(bounds, None, reached_ms, where)
        return {"fired_ms": _fired_ms(mine, base)} if "fired_ms" in form.optional else {}
    fired = _flags(mine.named.get("fired"), len(mine))
    check_open(bounds, fired, reached_ms, where)
    if base is not None:
        _check_fired(mine, fired, base, where)
    return {"fired": pa.array(fired)} if fired.any() else {}


def _flags(given: pa.Array | None, count: int) -> Mask:
    if given is None:
        return np.zeros(count, np.bool_)
    return np.asarray(pc.fill_null(given, False).to_numpy(zero_copy_only=False))


def _fired_ms(mine: _Rows, base: _Rows | None) -> pa.Array:
    """Up to where windows have fired for each key, as the base has it."""
    fired_ms = np.full(len(mine), WATERMARK_MIN_MS, np.int64)
    if base is not None:
        keys, number = np.unique(base.key_ids, return_inverse=True)
        highest = np.full(len(keys), WATERMARK_MIN_MS, np.int64)
        np.maximum.at(highest, number, base.named["fired_ms"].to_numpy(zero_copy_only=False))
        place = np.minimum(np.searchsorted(keys, mine.key_ids), len(keys) - 1)
        is_there = keys[place] == mine.key_ids
        fired_ms[is_there] = highest[place[is_there]]
    return pa.array(fired_ms)


def _check_fired(mine: _Rows, fired: Mask, base: _Rows, where: str) -> None:
    """What was sent of windows that have fired can't be changed any more: they have to be as in the base."""
    before = np.flatnonzero(_flags(base.named.get("fired"), len(base)))
    after = np.flatnonzero(fired)
    before, after = before[np.argsort(base.ids[before])], after[np.argsort(mine.ids[after])]
    is_same = np.array_equal(base.ids[before], mine.ids[after])
    was, now = (
        pl.Series(rows.named["value"].take(pa.array(at))) for rows, at in ((base, before), (mine, after))
    )
    if not is_same or not was.equals(now):  # NaN is NaN
        _refuse_fired(where)


def _refuse_fired(where: str) -> NoReturn:
    raise UsageError(
        f"{where} has other windows that have fired than the base, or others in them: what was sent of them "
        "can't be changed any more, so give them as they are, `fired` included"
    )
