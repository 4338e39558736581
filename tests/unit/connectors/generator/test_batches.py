"""Made-up records in batches: each number once, the same when read again, at the rate that is asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.connectors.generator.source import GeneratorSource, generator_source
from onceflow.connectors.nexmark import nexmark
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import BatchedSource, BatchLimit
from onceflow.runtime.errors import UsageError
from onceflow.structured_streaming.any_source.batch_reading import RowShape, read_splits


class Numbers:
    """A Maker of the numbers themselves."""

    def batch(self, numbers: Any, columns: Sequence[str]) -> pa.RecordBatch:
        return pa.record_batch({"n": pa.array(numbers)})


SCHEMA = pa.schema([("n", pa.int64())])


class Hand(SystemClock):
    """A clock that is moved by hand."""

    at_ms = 1_000

    def now_ms(self) -> int:
        return self.at_ms


def read(source: GeneratorSource, begin: Any, end: Any) -> list[int]:
    planner = source.open_planner(SystemClock(), BatchLimit())
    shape = RowShape(SCHEMA)
    tasks = planner.tasks(begin, end)
    return sorted(n for t in tasks for rows in read_splits(source, t, shape) for n in rows["n"].to_pylist())


@given(st.integers(0, 40), st.integers(1, 5), st.integers(1, 15))
@example(7, 3, 2)
def test_each_record_is_in_one_batch(count: int, splits: int, limit: int) -> None:
    source = GeneratorSource(Numbers(), SCHEMA, count=count, splits=splits)
    assert isinstance(source, BatchedSource)
    place = source.open_planner(SystemClock(), BatchLimit()).first()
    seen: list[int] = []
    while True:
        planner = source.open_planner(SystemClock(), BatchLimit(records=limit))
        end = json.loads(json.dumps(planner.next(place)))
        if end == place:
            break
        batch = read(source, place, end)
        assert len(batch) <= limit
        assert batch == read(source, place, end)
        seen += batch
        place = end
    assert seen == list(range(count))


def test_a_rate_says_how_many_there_are_by_now() -> None:
    clock = Hand()
    source = GeneratorSource(Numbers(), SCHEMA, rate=100.0)
    planner = source.open_planner(clock, BatchLimit())
    place = planner.next(planner.first())
    assert place["records"] == 1
    clock.at_ms += 500
    planner.hold()
    clock.at_ms += 500
    place = planner.next(place)
    assert place["records"] == 51
    assert planner.next(place) == place


def test_what_has_no_end_can_not_be_all_there() -> None:
    with pytest.raises(UsageError, match="give count or rate"):
        GeneratorSource(Numbers(), SCHEMA).open_planner(SystemClock(), BatchLimit()).hold()


def test_the_generator_and_nexmark_have_batches() -> None:
    assert isinstance(generator_source(SCHEMA, None, 10, 1, None, None), BatchedSource)
    assert isinstance(nexmark("bid", events=100), BatchedSource)
