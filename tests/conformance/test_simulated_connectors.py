"""The simulation's own source, sink and operator pass the suites that real ones have to pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import pyarrow as pa
import pytest

from onceflow.runtime.contracts import Fetch, Sink, Source
from onceflow.runtime.testing.choices import ReplayedChoices
from onceflow.runtime.testing.conformance import (
    OPERATOR_CHECKS,
    SOURCE_CHECKS,
    OperatorUnderTest,
)
from onceflow.runtime.testing.sim_broker import SimBroker, SimSink
from onceflow.runtime.testing.sim_job import RECORD_SCHEMA, SimInput, SimReader, SimRecord, SimSource
from onceflow.runtime.testing.sim_tally import Tally
from onceflow.testing.kit import SinkKit


class FreeReader(SimReader):
    """Reads without the world's credit."""

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        self.credit = 1
        return super().poll(timeout_ms, records_max)


class FreeSource(SimSource):
    def open_reader(self, context: object) -> SimReader:
        return FreeReader(self.input, self.choices)


def record_batch(records: Sequence[SimRecord]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"id": r.id, "key": r.key, "ts": r.ts, "value": r.value} for r in records], schema=RECORD_SCHEMA
    )


RECORDS = [SimRecord(n, n % 3, 4 * n, 1) for n in range(9)]


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_simulated_source(check: Callable[[Source], None]) -> None:
    check(FreeSource(SimInput({"a": RECORDS[:5], "b": RECORDS[5:]}), ReplayedChoices([])))


class TestSimulatedSink(SinkKit):
    in_new_processes = False
    schema = other_schema = RECORD_SCHEMA

    @cached_property
    def broker(self) -> SimBroker:
        return SimBroker(ReplayedChoices([]))

    def row(self, n: int) -> dict[str, int]:
        return {"id": n, "key": 0, "ts": 0, "value": 0}

    def sink(self) -> Sink:
        return SimSink(self.broker)

    def visible(self) -> list[int]:
        return [row[1] for row in self.broker.visible]


@pytest.mark.parametrize("check", OPERATOR_CHECKS, ids=lambda check: check.__name__)
def test_simulated_operator(check: Callable[[OperatorUnderTest], None]) -> None:
    steps = [
        (record_batch(part), [r.ts for r in part], part[-1].ts - 6)
        for part in (RECORDS[:2], RECORDS[2:3], RECORDS[3:7], RECORDS[7:])
    ]
    check(OperatorUnderTest(Tally, ["key"], steps))
