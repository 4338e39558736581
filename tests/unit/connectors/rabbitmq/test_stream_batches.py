"""Batches of streams: each message is in one, whenever a batch is planned, by whichever planner, and read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.connectors.formats import Text
from onceflow.connectors.rabbitmq import RabbitStreamSource
from onceflow.connectors.rabbitmq.stream_batches import StreamPlanner
from onceflow.connectors.rabbitmq.stream_position import Found, StreamPosition
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import BatchedSource, BatchLimit, Json, SplitState
from onceflow.runtime.errors import DataLossError, OptionError

APPENDED = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 5), st.integers(0, 2), st.booleans()), max_size=10
)
"""Stream, messages, the server's own notes behind them, and whether a new planner goes on."""


@dataclass
class Server:
    """Streams whose offsets have holes: StreamLooks."""

    offsets: dict[str, list[int]] = field(default_factory=dict)
    ends_at: dict[str, int] = field(default_factory=dict)
    asked: int = 0

    def append(self, stream: str, count: int, notes: int) -> None:
        first = self.ends_at.get(stream, 0)
        self.offsets.setdefault(stream, []).extend(range(first, first + count))
        self.ends_at[stream] = first + count + notes

    def begun(self) -> Mapping[str, StreamPosition]:
        return {stream: StreamPosition(0) for stream in self.offsets}

    def ends(self, is_sure: bool) -> Mapping[str, Found | None]:
        self.asked += 1
        return {
            stream: Found(offsets[-1], str(offsets[-1])) if offsets else None
            for stream, offsets in self.offsets.items()
        }

    def digest_at(self, stream: str, offset: int) -> str | None:
        return str(offset) if offset in self.offsets[stream] else None

    def check(self, stream: str, position: StreamPosition) -> None:
        raise DataLossError(f"{stream} was made anew")

    def read(self, split: SplitState) -> list[tuple[str, int]]:
        position = StreamPosition.of(split)
        assert position.until_offset is not None
        assert position.digest in (None, str(position.before)), "the message before it is another one"
        found = [n for n in self.offsets[split.split_id] if position.next_offset <= n < position.until_offset]
        assert any(n >= position.until_offset - 1 for n in self.offsets[split.split_id]), "it would not end"
        return [(split.split_id, n) for n in found]


def read(server: Server, planner: StreamPlanner, begin: Json, end: Json) -> list[tuple[str, int]]:
    tasks = planner.tasks(begin, end)
    assert len({split.split_id for task in tasks for split in task}) == len(tasks)
    return [row for task in tasks for split in task for row in server.read(split)]


@given(APPENDED, st.integers(1, 7) | st.none())
@example([(0, 3, 2, False), (0, 1, 0, True), (1, 4, 0, False)], 2)  # a hole, a restart, a new partition
@example([(0, 5, 1, False), (1, 1, 0, False)], 3)
def test_each_message_is_in_one_batch(
    appended: list[tuple[int, int, int, bool]], records: int | None
) -> None:
    server, clock = Server(), ManualClock(0)
    server.append("s0", 1, 0)
    planner = StreamPlanner(server, clock, BatchLimit(records=records))
    place: Json = planner.first()
    seen: list[tuple[str, int]] = []

    def go_on() -> bool:
        nonlocal place, seen
        clock.advance(1_000)
        end = json.loads(json.dumps(planner.next(place)))
        batch = read(server, planner, place, end)
        assert batch == read(server, planner, place, end)
        assert records is None or len(batch) <= max(records, len(server.offsets))
        is_new = end != place
        place, seen = end, seen + batch
        return is_new

    for stream, count, notes, restarts in appended:
        go_on()
        server.append(f"s{stream}", count, notes)
        if restarts:
            planner = StreamPlanner(server, clock, BatchLimit(records=records))
    planner.hold()
    held = [(stream, n) for stream, offsets in server.offsets.items() for n in offsets]
    server.append("s0", 2, 0)
    while go_on():
        pass
    assert sorted(seen) == sorted(held)


def test_a_server_that_has_nothing_new_is_asked_once_a_second() -> None:
    server, clock = Server(), ManualClock(0)
    server.append("s0", 2, 0)
    planner = StreamPlanner(server, clock, BatchLimit())
    place = planner.next(planner.next(planner.first()))
    assert place == {"streams": {"s0": [2, "1"]}}
    for _ in range(5):
        assert planner.next(place) == place
    assert server.asked == 2
    clock.advance(1_000)
    planner.next(place)
    assert server.asked == 3


def test_a_stream_that_ends_before_what_was_read_was_made_anew() -> None:
    server = Server()
    server.append("s0", 2, 0)
    planner = StreamPlanner(server, ManualClock(0), BatchLimit())
    with pytest.raises(DataLossError, match="s0 was made anew"):
        planner.next({"streams": {"s0": [9, "8"]}})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"until": "latest"}, "have no until"), ({"if_truncated": "skip"}, "makes no sense in batches")],
)
def test_what_would_make_no_sense_in_batches_is_refused(options: dict[str, str], sentence: str) -> None:
    source = RabbitStreamSource(streams=["s"], value=Text("line"), **options)  # type: ignore[arg-type]
    assert isinstance(source, BatchedSource)
    with pytest.raises(OptionError, match=sentence):
        source.open_planner(ManualClock(0), BatchLimit())
