"""The simulation's own source, sink and operator pass the suites that real ones have to pass."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import BinaryIO

import pyarrow as pa
import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Fetch, SinkContext, SinkWriter, Source
from onceflow.runtime.records import Records
from onceflow.runtime.testing.choices import ReplayedChoices
from onceflow.runtime.testing.conformance import (
    OPERATOR_CHECKS,
    SINK_CHECKS,
    SOURCE_CHECKS,
    OperatorUnderTest,
    SinkUnderTest,
)
from onceflow.runtime.testing.sim_broker import SimBroker, SimSink
from onceflow.runtime.testing.sim_job import RECORD_SCHEMA, SimInput, SimReader, SimRecord, SimSource
from onceflow.runtime.testing.sim_tally import Tally


class NoFiles:
    def create(self, name: str) -> tuple[str, BinaryIO]:
        return name, io.BytesIO()

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO()


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


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_simulated_sink(check: Callable[[SinkUnderTest], None]) -> None:
    broker = SimBroker(ReplayedChoices([]))
    sink = SimSink(broker)

    def open_writer(subtask: int, parallelism: int, attempt: int, restored: int) -> SinkWriter:
        context = SinkContext(
            "job",
            "beef",
            "out",
            subtask,
            parallelism,
            attempt,
            restored,
            NoFiles(),
            ManualClock(),
            RECORD_SCHEMA,
        )
        return sink.open_writer(context)

    def records(n: int) -> Records:
        return Records(record_batch([SimRecord(n, 0, 0, 0)]))

    check(SinkUnderTest(open_writer, records, lambda: [row[1] for row in broker.visible]))


@pytest.mark.parametrize("check", OPERATOR_CHECKS, ids=lambda check: check.__name__)
def test_simulated_operator(check: Callable[[OperatorUnderTest], None]) -> None:
    steps = [
        (record_batch(part), [r.ts for r in part], part[-1].ts - 6)
        for part in (RECORDS[:2], RECORDS[2:3], RECORDS[3:7], RECORDS[7:])
    ]
    check(OperatorUnderTest(Tally, ["key"], steps))
