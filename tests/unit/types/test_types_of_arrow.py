"""A state whose type is Arrow's: its column is exactly that, and a job goes on with what it has kept."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import onceflow
from onceflow import Ctx, Job, KeyedProcess, ListState, MapState, ReducingState, ValueState
from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.columns_of_records import array_from_values
from onceflow.runtime.types.record_types import describe_type
from onceflow.runtime.types.records_of_columns import values_from_array

UTC = dt.UTC
STRUCT = pa.struct([pa.field("n", pa.int64(), nullable=False), pa.field("note", pa.string())])
CASES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [1, -5]),
    (pa.string(), ["", "é"]),
    (pa.bool_(), [True]),
    (pa.float64(), [1.5]),
    (pa.binary(), [b"\x00"]),
    (pa.timestamp("ms", "UTC"), [dt.datetime(2026, 7, 1, tzinfo=UTC)]),
    (pa.date32(), [dt.date(2026, 7, 1)]),
    (pa.time64("us"), [dt.time(1, 2, 3)]),
    (pa.duration("us"), [dt.timedelta(days=1)]),
    (pa.decimal128(10, 2), [Decimal("1.50")]),
    (pa.list_(pa.int64()), [[1, None], []]),
    (pa.list_(pa.field("item", pa.int64(), nullable=False)), [[1, 2]]),
    (pa.map_(pa.string(), pa.list_(STRUCT)), [{"a": [{"n": 1, "note": None}], "b": None}]),
    (STRUCT, [{"n": 1, "note": "x"}, {"n": 2, "note": None}]),
]


@pytest.mark.parametrize(("arrow", "values"), CASES, ids=[str(arrow) for arrow, _ in CASES])
def test_the_column_is_exactly_that_and_values_come_back(arrow: pa.DataType, values: list[Any]) -> None:
    described = describe_type(arrow, "state 'a'")
    assert described.arrow == arrow
    column = array_from_values([*values, None], pa.field("state", arrow), described)
    assert values_from_array(column, described) == [*values, None]


@pytest.mark.parametrize("arrow", [pa.int32(), pa.list_(pa.null()), pa.timestamp("us"), pa.struct([])])
def test_a_type_that_loses_something_is_refused(arrow: pa.DataType) -> None:
    with pytest.raises(GraphError, match=r"^state 'a' is Arrow's .*: use one of string, int64, double"):
        ValueState("a", arrow)


@dataclass(frozen=True)
class Event:
    user: str
    n: int


class Remember(KeyedProcess[str, Event, Event]):
    last: ValueState[dict[str, Any]] = ValueState("last", STRUCT)
    total: ReducingState[int] = ReducingState("total", pa.int64(), operator.add)
    notes: ListState[str] = ListState("notes", pa.string())
    counts: MapState[str, int] = MapState("counts", pa.string(), pa.int64())

    def process(self, event: Event, ctx: Ctx) -> Iterator[Event]:
        before = self.last.get({"n": 0, "note": None})
        self.last.set({"n": before["n"] + event.n, "note": f"{event.n}"})
        self.total.add(event.n)
        self.notes.add(f"{event.n}")
        self.counts.put("all", self.counts.get("all", 0) + 1)
        yield Event(event.user, before["n"] + event.n)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_job_keeps_them_over_a_savepoint_and_others_read_them(tmp_path: Path, backend: str) -> None:
    seen, first, edited = [], tmp_path / "first", tmp_path / "edited"

    def run(folder: Path, **options: Any) -> None:
        job = Job("told")
        events = job.from_elements(Event("ann", 1), Event("ann", 2), uid="events")
        found = events.key_by("user").process(Remember(), uid="remember").collect()
        job.run(folder, master="threads[1]", state_backend=backend, **options)
        seen.append([each.n for each in found])

    run(first)
    kept = pa.table({"user": ["ann"], "value": pa.array([{"n": 100, "note": None}], STRUCT)})
    onceflow.write_state(edited, "remember", "last", kept, keys=["user"], base=first)
    run(tmp_path / "next", start_from=edited, reset_offsets={"events": "start"})
    assert seen == [[1, 3], [101, 103]]
    with onceflow.read_state(tmp_path / "next") as state:
        assert state.table("remember", "last").read()["value"].to_pylist() == [{"n": 103, "note": "2"}]
        assert state.table("remember", "total").read()["value"].to_pylist() == [6]
        assert state.table("remember", "notes").read()["value"].to_pylist() == ["1", "2", "1", "2"]
        assert state.table("remember", "counts").read()["value"].to_pylist() == [4]
