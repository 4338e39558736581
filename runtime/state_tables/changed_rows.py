"""onceflow.read_changes: what has become of a state between two checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.arguments import PathText
from onceflow.runtime.errors import UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.records import Int64s
from onceflow.runtime.state_tables.reader import StoredTable, read_state

ROW_KIND = "row_kind"
PART_ROWS_MAX = 500_000
"""Rows of a part, which are in memory."""
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "insert", "update_before", "update_after", "delete"
_BESIDE_KEY: Mapping[str, int] = {
    "value": 0,
    "list": 1,
    "map": 1,
    "broadcast": 1,
    "split list": 2,
    "union list": 2,
    "timers": 2,
    "offsets": 1,
    "windows": 1,
    "panes": 1,
    "spans": 2,
    "counts": 0,
    "count_panes": 1,
    "reduced": 0,
}
"""How many columns behind the key's say, with the key, which row it is: by the kind, or else the table."""


@explained
def read_changes(
    path: PathText, from_checkpoint: int, to_checkpoint: int, operator: str, state: str | None = None
) -> pa.Table:
    """The rows of a state's table that are not the same in two checkpoints of a folder, in no order.

    The column `row_kind`, the first one, says what a row is: `insert`, `delete`, or `update_before` and
    `update_after`, which come one behind the other. The columns behind it are those of `read_state`. Which
    rows are the same one the key says, with the place in a list, the entry of a map, the start of a window.
    Both states are in memory. Raises UsageError for what is not there, and for the state of joins and rows
    in flight, of which a row can be there twice.
    """
    with read_state(path, from_checkpoint) as before, read_state(path, to_checkpoint) as after:
        was, now = before.table(operator, state), after.table(operator, state)
        names = _identity(now)
        return changes_of(was.read(), now.read(), names)


def change_parts(was: StoredTable, now: StoredTable, rows_max: int = PART_ROWS_MAX) -> list[range | None]:
    """Key groups that can be compared by themselves, with at most so many rows in both checkpoints together,
    or one group. [None]: the table is compared as a whole, since rows have no key."""
    if not now.key_columns.names:
        return [None]
    counts = _rows_of_key_groups(was) + _rows_of_key_groups(now)
    parts: list[range | None] = []
    first = rows = 0
    for group, count in enumerate(counts.tolist()):
        if rows and rows + count > rows_max:
            parts.append(range(first, group))
            first, rows = group, 0
        rows += count
    return [*parts, range(first, len(counts))]


def _rows_of_key_groups(table: StoredTable) -> Int64s:
    counts = np.zeros(table._of.max_parallelism, np.int64)
    for handle in table._handles:
        for file in handle.files.get(table._shape.table, ()):
            counts[handle.key_groups_start : handle.key_groups_end] += file.rows_per_key_group
    return counts


def changes_in(was: StoredTable, now: StoredTable, part: range | None) -> pa.Table:
    """What `read_changes` gives, for one of `change_parts`."""
    names = _identity(now)
    if part is None:
        return changes_of(was.read(), now.read(), names)
    return changes_of(was.of_key_groups(part), now.of_key_groups(part), names)


def changes_of(was: pa.Table, now: pa.Table, names: list[str]) -> pa.Table:
    """What has become of these rows, which are the same if `names` are. Raises UsageError if the columns are
    others."""
    if was.schema != now.schema:
        raise UsageError(
            f"the state has other columns in the two checkpoints, {was.schema.names} and {now.schema.names}, "
            "or other types: read each by read_state"
        )
    values = [name for name in now.schema.names if name not in names]
    old, new = (_placed(table, names, place) for table, place in ((was, "_was"), (now, "_now")))
    both = old.join(new, names, how="full", nulls_equal=True)
    old_rows, new_rows = both["_was"], both["_now"]
    met = both.filter(pl.col("_was").is_not_null() & pl.col("_now").is_not_null())
    left, right = _taken(was, met["_was"]), _taken(now, met["_now"])
    changed = met.filter(_differ(left, right, values))
    pieces = [
        _as(INSERT, now, new_rows.filter(old_rows.is_null())),
        _as(DELETE, was, old_rows.filter(new_rows.is_null())),
    ]
    updates = [_as(UPDATE_BEFORE, was, changed["_was"]), _as(UPDATE_AFTER, now, changed["_now"])]
    in_pairs = np.arange(2 * len(changed)).reshape(2, -1).T.ravel()
    return pa.concat_tables([*pieces, pa.concat_tables(updates).take(pa.array(in_pairs))]).combine_chunks()


def _differ(left: pl.DataFrame, right: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    """Which rows are not the same in these columns; null is a value like any other."""
    differs = pl.repeat(False, len(left), eager=True, dtype=pl.Boolean)
    for name in names:
        differs |= left[name].ne_missing(right[name])
    return differs


def _identity(table: StoredTable) -> list[str]:
    keys = table.key_columns.names
    beside = _BESIDE_KEY.get(table.kind.partition(" by ")[0], _BESIDE_KEY.get(table.state))
    if beside is None or not (keys or beside):
        raise UsageError(
            f"rows of {table.state!r} of {table.operator!r} have nothing that tells one from another: "
            "read both checkpoints by read_state"
        )
    return [*keys, *table.schema.names[len(keys) : len(keys) + beside]]


def _placed(table: pa.Table, names: list[str], place: str) -> pl.DataFrame:
    """The columns that identify rows, and where each row is."""
    frame = pl.from_arrow(table.select(names))
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(place))


def _taken(table: pa.Table, rows: pl.Series) -> pl.DataFrame:
    frame = pl.from_arrow(table.take(rows.to_arrow()))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _as(kind: str, table: pa.Table, rows: pl.Series) -> pa.Table:
    chosen = table.take(rows.to_arrow())
    kinds = pa.repeat(pa.scalar(kind), chosen.num_rows)
    return chosen.add_column(0, pa.field(ROW_KIND, pa.string()), kinds)
