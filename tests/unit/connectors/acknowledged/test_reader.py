"""QueueReader with deliveries by hand: when a queue is quiet, and checkpoints that are too rare. What comes
again is driven against servers (test_rabbitmq_queue, test_pubsub)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from onceflow.connectors.acknowledged.messages import Message
from onceflow.connectors.acknowledged.reader import QueueReader, QueueSettings
from onceflow.connectors.formats import Json
from onceflow.connectors.message_rows import MessageRows
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import ReaderContext, SplitState
from onceflow.runtime.errors import Fatal

SETTINGS = QueueSettings(False, 10_000, 60_000, 60_000, "do something")
VALUE = Json(pa.schema([("n", pa.int64())]))
SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us")), ("id", pa.string())])


class Scripted:
    """Deliveries of what it is given."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.waiting: list[Message] = []
        self.alive_ms = 0.0
        self.is_empty = False

    def take(self, count: int) -> Sequence[Message]:
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    def acknowledge(self, last_tag: int) -> None: ...

    def close(self) -> None: ...


def opened(interval_ms: int | None = None) -> tuple[QueueReader, Scripted, ManualClock]:
    clock = ManualClock()
    deliveries = Scripted(clock)
    context = ReaderContext("job", "orders", 0, 1, clock, checkpoint_interval_ms=interval_ms)
    rows = MessageRows(SCHEMA, VALUE.decoder(None), False)
    reader = QueueReader(lambda split_id: deliveries, rows, ["at", "id"], SETTINGS, context)
    reader.add_splits([SplitState("q", {"count": 0, "ids": ""})])
    return reader, deliveries, clock


def test_columns_beside_the_body_have_the_types_of_the_schema() -> None:
    reader, deliveries, _ = opened()
    deliveries.waiting = [Message("a", b'{"n": 1}', 1, False, {"at": 5})]
    fetch = reader.poll(0, 10)
    assert fetch is not None
    assert fetch.records.schema == SCHEMA
    assert fetch.records.column("at").cast(pa.int64()).to_pylist() == [5]


def test_a_queue_is_at_its_end_when_nothing_has_come_for_a_second_and_the_server_is_there() -> None:
    reader, deliveries, clock = opened()
    assert reader.poll(0, 10) is None
    clock.advance(1_000)
    deliveries.alive_ms = -1.0
    assert reader.poll(0, 10) is None, "the server has not answered since"
    deliveries.alive_ms = clock.monotonic_ms()
    fetch = reader.poll(0, 10)
    assert fetch is not None
    assert (fetch.at_end, fetch.records.num_rows) == ({"q"}, 0)
    assert reader.poll(0, 10) is None, "it is said once"
    deliveries.waiting = [Message("a", b'{"n": 1}', 1, False)]
    fetch = reader.poll(0, 10)
    assert fetch is not None
    assert fetch.at_end == frozenset()
    clock.advance(999)
    assert reader.poll(0, 10) is None
    clock.advance(1_000)
    deliveries.alive_ms = clock.monotonic_ms()
    fetch = reader.poll(0, 10)
    assert fetch is not None
    assert fetch.at_end == {"q"}


def test_a_checkpoint_interval_of_half_of_what_the_server_waits_is_refused() -> None:
    opened(None)
    opened(29_999)
    with pytest.raises(
        Fatal, match=r"source 'orders': .* which are 30 s apart, .* for 60 s: .* or do something"
    ):
        opened(30_000)
