"""Which row of a key counts: the last one, or the one that a column says, whichever writer has brought it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.connectors.named_columns import check_order
from onceflow.connectors.staged_commits.staged_kinds import KIND
from onceflow.connectors.tables.changes import last_changes
from onceflow.runtime.contracts import SettlingSink
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.sinks.delta import DeltaSink
from onceflow.sinks.iceberg import IcebergSink

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3) | st.none(), st.booleans()), max_size=12)


def table_of(rows: list[tuple[int, int | None, bool]]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([row[0] for row in rows], pa.int64()),
            "at": pa.array([row[1] for row in rows], pa.int64()),
            "n": pa.array(range(len(rows)), pa.int64()),
            KIND: pa.array([3 if row[2] else 0 for row in rows], pa.int8()),
        }
    )


@given(ROWS, st.booleans())
@example([(1, 2, False), (1, 1, False)], True)  # the column decides
@example([(1, 2, False), (1, 2, False), (1, None, False)], True)  # the later of equal ones; null is below
@example([(1, 2, False), (1, 1, False)], False)
def test_one_row_of_each_key_counts(rows: list[tuple[int, int | None, bool]], ordered: bool) -> None:
    expected: dict[int, tuple[int, int, bool]] = {}
    for n, (key, at, is_gone) in enumerate(rows):
        rank = -1 if at is None else at
        if key not in expected or not ordered or rank >= expected[key][0]:
            expected[key] = (rank, n, is_gone)
    changes = last_changes(table_of(rows), ["id"], "at" if ordered else None)
    assert dict(zip(*(changes.rows.column(each).to_pylist() for each in ("id", "n")), strict=True)) == {
        key: n for key, (_, n, is_gone) in expected.items() if not is_gone
    }
    gone = {key for key, (_, _, is_gone) in expected.items() if is_gone}
    assert set(changes.deleted.column("id").to_pylist()) == gone


@pytest.mark.parametrize("make", [DeltaSink, lambda url, **given: IcebergSink("c", "shop.t", **given)])
def test_tables_settle_keys_and_say_what_order_by_is_for(make: Any) -> None:
    sink = make("/t", key="id", order_by="at")
    assert isinstance(sink, SettlingSink)
    assert sink.settles_keys
    assert not sink.takes_kinds
    with pytest.raises(OptionError, match=r"order_by='at' says which row of a key counts: give key="):
        make("/t", order_by="at")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("att", r"order column 'att' is not in the rows \(did you mean 'at'"),
        ("id", "order_by='id' is one of the key"),
        ("tags", "which has no order: give a number"),
    ],
)
def test_a_column_that_says_no_order_is_refused(name: str, sentence: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("tags", pa.list_(pa.string()))])
    with pytest.raises(GraphError, match=sentence):
        check_order(name, ["id"], schema, "out")
