"""What travels in a channel: batches of rows in columns, and between them what is known of time."""

import numpy as np
import pyarrow as pa
from onceflow.runtime.clock import Clock, ManualClock, SystemClock
from onceflow.runtime.records import (
    Barrier,
    Element,
    EndOfInput,
    Idle,
    LoopToken,
    Origin,
    Records,
    RowKind,
    Watermark,
    concatenated,
)

batch = pa.RecordBatch.from_pylist([{"user": "ann"}, {"user": "bob"}])
origin = Origin(("purchases-0",), np.zeros(2, np.uint16), np.array([17, 18]))
records = Records(batch, event_time=np.array([1_000, 2_000]), origin=origin)
assert len(records) == 2
assert records.take(np.array([1])).origin.describe(0) == "purchases-0 at offset 18"  # type: ignore[union-attr]
assert records.filter(np.array([True, False])).batch.to_pylist() == [{"user": "ann"}]

changes = Records(
    batch, kind=np.array([RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER], np.int8)
)
both = concatenated([changes, changes.slice(0, 1)])
assert [RowKind(kind).name for kind in both.kind.tolist()][-1] == "UPDATE_BEFORE"  # type: ignore[union-attr]

stream: list[Element] = [records, Watermark(2_000), Barrier(1), Idle(), EndOfInput()]
stream.append(LoopToken("loop", 1, is_quiet=False))  # between the operators of a loop
assert [type(element).__name__ for element in stream][2] == "Barrier"

clock = ManualClock()  # what decides gets a Clock, so that a test moves it
clock.advance(500)
clocks: list[Clock] = [clock, SystemClock()]
assert clocks[0].now_ms() == 500
