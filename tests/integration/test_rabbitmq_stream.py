"""RabbitStreamSource on a real RabbitMQ: the contract, starts and ends, and what is gone."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.rabbitmq import RabbitStreamSource
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import BatchLimit, ReaderContext, SplitState
from onceflow.runtime.errors import BadRecordError, DataLossError, Fatal, OptionError, Unavailable
from onceflow.sinks.print import PrintSink
from onceflow.structured_streaming.any_source.batch_reading import RowShape, read_splits
from onceflow.testing.kit import SourceKit
from tests.rabbitmq_server import WHY_NOT, RabbitServer

pytestmark = [pytest.mark.rabbitmq, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
SCHEMA = pa.schema([("n", pa.int64())])
WAIT_S = 240
SMALL = {"x-max-length-bytes": 40_000, "x-stream-max-segment-size-bytes": 10_000}


@pytest.fixture(scope="module")
def server() -> Iterator[RabbitServer]:
    with RabbitServer() as server:
        yield server


def declare(server: RabbitServer, stream: str, kind: str = "stream", **arguments: Any) -> None:
    with closing(server.connect()) as connection:
        given = {"x-queue-type": kind, **arguments}
        connection.channel().queue_declare(stream, durable=True, arguments=given)


def publish(server: RabbitServer, stream: str, numbers: Sequence[int], padding: int = 0) -> None:
    with closing(server.connect()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for n in numbers:
            channel.basic_publish("", stream, json.dumps({"n": n}).encode() + b" " * padding)


def new_stream(server: RabbitServer, numbers: Sequence[int], **arguments: Any) -> str:
    stream = f"s{uuid.uuid4().hex[:10]}"
    declare(server, stream, **arguments)
    publish(server, stream, numbers)
    return stream


class TestStreams(SourceKit):
    count: ClassVar[int] = 9

    @pytest.fixture(autouse=True)
    def _server(self, server: RabbitServer) -> None:
        self.server = server
        self.settings["url"] = server.url

    def prepare(self) -> None:
        name = self.settings["super_stream"] = f"p{uuid.uuid4().hex[:10]}"
        for partition in range(2):
            declare(self.server, f"{name}-{partition}")
            publish(self.server, f"{name}-{partition}", range(self.count))

    def source(self) -> RabbitStreamSource:
        name, url = str(self.settings["super_stream"]), str(self.settings["url"])
        return RabbitStreamSource(super_stream=name, url=url, value=Json(SCHEMA), until="latest")


# --- Batches --------------------------------------------------------------------------------------------


def test_batches_of_streams_have_each_message_once_and_again_the_same(server: RabbitServer) -> None:
    """Planned by one planner after another, with a partition that has nothing yet."""
    name = f"p{uuid.uuid4().hex[:10]}"
    for partition in range(2):
        declare(server, f"{name}-{partition}")
    publish(server, f"{name}-0", range(10))
    source = RabbitStreamSource(super_stream=name, url=server.url, value=Json(SCHEMA))
    place: Any = source.open_planner(SystemClock(), BatchLimit()).first()
    seen: list[int] = []
    for first in (10, 20):
        planner = source.open_planner(SystemClock(), BatchLimit(records=4))
        planner.hold()
        while (end := json.loads(json.dumps(planner.next(place)))) != place:
            tasks = planner.tasks(place, end)
            for splits in tasks:
                rows = [numbers(read_to_end(source, splits)) for _ in range(2)]
                assert rows[0] == rows[1]
                assert len(rows[0]) <= 4
                seen += rows[0]
            place = end
        publish(server, f"{name}-1", range(first, first + 10))
    assert seen == list(range(20))


def test_a_stream_that_was_made_anew_is_not_read_on_in_batches(server: RabbitServer) -> None:
    stream = new_stream(server, range(5))
    source = source_of(server, stream)
    planner = source.open_planner(SystemClock(), BatchLimit())
    planner.hold()
    place = planner.next(planner.next(planner.first()))
    with closing(server.connect()) as connection:
        connection.channel().queue_delete(stream)
    declare(server, stream)
    publish(server, stream, range(3))
    anew = source.open_planner(SystemClock(), BatchLimit())
    with pytest.raises(DataLossError, match="deleted and made anew"):
        plan_until_told(anew, place)


def plan_until_told(planner: Any, place: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:  # the server counts each few seconds
        planner.next(place)
        threading.Event().wait(0.1)


def read_to_end(source: RabbitStreamSource, splits: Sequence[SplitState]) -> list[Any]:
    shape = RowShape(SCHEMA)
    return [row for batch in read_splits(source, splits, shape) for row in batch.to_pylist()]


# --- Readers --------------------------------------------------------------------------------------------


def source_of(server: RabbitServer, stream: str, **options: Any) -> RabbitStreamSource:
    return RabbitStreamSource(streams=[stream], url=server.url, value=Json(SCHEMA), **options)


def splits_of(source: RabbitStreamSource) -> Sequence[SplitState]:
    return source.open_enumerator("job", SystemClock()).initial_splits()


def open_reader(source: RabbitStreamSource, splits: Sequence[SplitState] = ()) -> Any:
    reader = source.open_reader(ReaderContext("job", "uid", 0, 1, SystemClock()))
    reader.add_splits(splits or splits_of(source))
    return reader


def read(reader: Any, until: Callable[[list[Any]], bool], records_max: int = 1_000) -> list[Any]:
    seen: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while not until(seen):
        assert time.monotonic() < deadline, f"{len(seen)} rows within {WAIT_S} s"
        if (fetch := reader.poll(0, records_max)) is None:
            threading.Event().wait(0.005)
            continue
        seen += fetch.records.to_pylist()
    return seen


def numbers(rows: Sequence[Any]) -> list[int]:
    return [row["n"] for row in rows]


def through_json(splits: Sequence[SplitState]) -> list[SplitState]:
    return [SplitState(s.split_id, json.loads(json.dumps(s.position))) for s in splits]


def some_of(server: RabbitServer, stream: str, count: int) -> list[SplitState]:
    """The position behind the first `count` messages."""
    with closing(open_reader(source_of(server, stream))) as reader:
        read(reader, lambda seen: len(seen) >= count, count)
        return through_json(reader.snapshot())


def test_what_is_known_of_a_message_comes_beside_it(server: RabbitServer) -> None:
    stream = new_stream(server, [7, 8])
    source = source_of(server, stream, offset_column="at", stream_column="of")
    with closing(open_reader(source)) as reader:
        rows = read(reader, lambda seen: len(seen) == 2)
    assert rows == [{"n": 7, "at": 0, "of": stream}, {"n": 8, "at": 1, "of": stream}]


def test_it_begins_where_it_is_told_and_ends_there(server: RabbitServer) -> None:
    stream = new_stream(server, range(5))
    long_ago = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    starts: dict[Any, list[int]] = {"earliest": [0, 1, 2, 3, 4], 3: [3, 4], long_ago: [0, 1, 2, 3, 4]}
    for start, expected in starts.items():
        source = source_of(server, stream, start=start, until="latest")
        splits = splits_of(source)
        assert splits[0].position["until_offset"] == 5
        with closing(open_reader(source, splits)) as reader:
            assert numbers(read(reader, lambda seen: 4 in numbers(seen))) == expected
    assert splits_of(source_of(server, stream, start=later))[0].position["next_offset"] == 5
    latest = source_of(server, stream, start="latest")
    splits = through_json(splits_of(latest))
    publish(server, stream, [5, 6])
    with closing(open_reader(latest, splits)) as reader:
        assert numbers(read(reader, lambda seen: len(seen) == 2)) == [5, 6]


def test_streams_of_a_savepoint_get_the_end_that_the_run_is_given(server: RabbitServer) -> None:
    stream = new_stream(server, range(5))
    endless, read_on = source_of(server, stream), some_of(server, stream, 2)
    assert endless.open_enumerator("job", SystemClock()).bounded(read_on, None) == read_on, "it has no end"
    for until, expected in (("latest", [2, 3, 4]), ({stream: 4}, [2, 3])):
        source = endless.ended(until)
        ended = source.open_enumerator("job", SystemClock()).bounded(read_on, None)
        assert numbers(read_to_end(source, ended)) == expected
        assert source.open_enumerator("job", SystemClock()).bounded(ended, None) == list(ended)
    assert splits_of(endless.ended({stream: 4}))[0].position["until_offset"] == 4
    for wrong, why in (({stream: 6}, "up to offset 6, but it has messages up to 5"), ({}, "no offset of")):
        with pytest.raises(OptionError, match=why):
            splits_of(endless.ended(wrong))


def test_a_stream_without_messages_is_finished_at_once(server: RabbitServer) -> None:
    stream = new_stream(server, [])
    with closing(open_reader(source_of(server, stream, until="latest"))) as reader:
        assert reader.poll(0, 10).finished == {stream}


def test_a_quiet_stream_is_told_to_be_at_its_end(server: RabbitServer) -> None:
    stream = new_stream(server, [1])
    with closing(open_reader(source_of(server, stream))) as reader:
        read(reader, lambda seen: len(seen) == 1)
        deadline = time.monotonic() + WAIT_S
        while (fetch := reader.poll(0, 10)) is None:
            assert time.monotonic() < deadline
            threading.Event().wait(0.002)
            threading.Event().wait(0.02)
        assert fetch.at_end == {stream}


def test_a_server_that_is_killed_is_read_on_exactly() -> None:
    with RabbitServer() as server:
        stream = new_stream(server, range(300))
        source = source_of(server, stream, prefetch=50)
        splits = splits_of(source)
        server.restart()
        with closing(open_reader(source, splits)) as reader:
            rows = read(reader, lambda seen: len(seen) >= 100, 100)
            server.kill()
            server.start()
            before = len(rows)
            rows += read(reader, lambda seen: before + len(seen) >= 300)  # so the stream is up again
            publish(server, stream, range(300, 310))
            before = len(rows)
            rows += read(reader, lambda seen: before + len(seen) >= 310)
        assert numbers(rows) == list(range(310))


def test_new_partitions_of_a_super_stream_are_found_and_read_from_their_beginning(
    server: RabbitServer,
) -> None:
    name = f"p{uuid.uuid4().hex[:10]}"
    declare(server, f"{name}-0")
    publish(server, f"{name}-0", [1])
    source = RabbitStreamSource(super_stream=name, url=server.url, value=Json(SCHEMA), start=0)
    enumerator = source.open_enumerator("job", SystemClock())
    known = enumerator.initial_splits()
    assert [split.split_id for split in known] == [f"{name}-0"]
    declare(server, f"{name}-1")
    publish(server, f"{name}-1", [2])
    new = enumerator.discover(frozenset({f"{name}-0"}))
    with closing(open_reader(source, [*known, *new])) as reader:
        assert sorted(numbers(read(reader, lambda seen: len(seen) == 2))) == [1, 2]


# --- What is gone ---------------------------------------------------------------------------------------


def truncate(server: RabbitServer, stream: str) -> None:
    """Publish until retention has deleted the beginning."""
    deadline = time.monotonic() + WAIT_S
    while splits_of(source_of(server, stream))[0].position["next_offset"] <= 5:
        assert time.monotonic() < deadline
        publish(server, stream, range(100, 300), padding=500)


def test_a_stream_whose_retention_has_passed_the_position_ends_the_job(server: RabbitServer) -> None:
    stream = new_stream(server, range(5), **SMALL)
    position = some_of(server, stream, 3)
    truncate(server, stream)
    said = f"stream '{stream}' has to go on at offset 3, and its first message is at \\d+: retention"
    with pytest.raises(DataLossError, match=said):
        source_of(server, stream).open_enumerator("job", SystemClock()).check_restored(position)
    with (
        closing(open_reader(source_of(server, stream), position)) as reader,
        pytest.raises(DataLossError, match=said),
    ):
        read(reader, lambda seen: False)
    skipping = source_of(server, stream, if_truncated="skip", offset_column="at")
    skipping.open_enumerator("job", SystemClock()).check_restored(position)
    first = splits_of(skipping)[0].position["next_offset"]
    with closing(open_reader(skipping, position)) as reader:
        assert read(reader, lambda seen: len(seen) > 0)[0]["at"] == first


@pytest.mark.parametrize(("messages", "said"), [(range(50, 60), "another message is at 2"), ([9], "is at 0")])
def test_a_stream_that_was_made_anew_ends_the_job(
    messages: Sequence[int], said: str, server: RabbitServer
) -> None:
    stream = new_stream(server, range(5))
    position = some_of(server, stream, 3)
    with closing(server.connect()) as connection:
        connection.channel().queue_delete(stream)
    declare(server, stream)
    publish(server, stream, messages)
    with pytest.raises(DataLossError, match=said):
        source_of(server, stream).open_enumerator("job", SystemClock()).check_restored(position)


def test_a_queue_is_refused_and_keeps_its_messages(server: RabbitServer) -> None:
    queue = f"q{uuid.uuid4().hex[:10]}"
    declare(server, queue, kind="classic")
    publish(server, queue, [1])
    splits = [SplitState(queue, {"next_offset": 0, "until_offset": None, "digest": None})]
    with (
        closing(open_reader(source_of(server, queue), splits)) as reader,
        pytest.raises(Fatal, match="is a queue and no stream"),
    ):
        read(reader, lambda seen: False)
    with closing(server.connect()) as connection:
        assert connection.channel().basic_get(queue)[2] == b'{"n": 1}'


def test_what_is_no_row_ends_the_job_or_goes_to_the_dead_letters(server: RabbitServer) -> None:
    stream = new_stream(server, [1])
    other = Json(pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    bad = RabbitStreamSource(streams=stream, url=server.url, value=other)
    said = f"message at offset 0 of stream '{stream}'"
    with closing(open_reader(bad)) as reader, pytest.raises(BadRecordError, match=said):
        read(reader, lambda seen: False)
    tolerant = RabbitStreamSource(streams=stream, url=server.url, value=other, dead_letters=PrintSink())
    with closing(open_reader(tolerant)) as reader:
        deadline = time.monotonic() + WAIT_S
        while (fetch := reader.poll(0, 10)) is None:
            assert time.monotonic() < deadline
            threading.Event().wait(0.002)
        (letter,) = fetch.dead_letters.to_pylist()
    assert (letter["topic"], letter["offset"], letter["value"]) == (stream, 0, b'{"n": 1}')


def test_what_lacks_is_one_sentence(server: RabbitServer) -> None:
    with pytest.raises(Fatal, match="is not there: declare it, or give another name in streams="):
        splits_of(source_of(server, "nothing", start="latest"))
    with pytest.raises(Fatal, match="super stream 'nothing' has no partition nothing-0"):
        splits_of(RabbitStreamSource(super_stream="nothing", url=server.url, value=Json(SCHEMA)))
    splits = [SplitState("s", {"next_offset": 0, "until_offset": None, "digest": None})]
    away = RabbitStreamSource(streams="s", url="amqp://127.0.0.1:1/", value=Json(SCHEMA), timeout="50 ms")
    with closing(open_reader(away, splits)) as reader, pytest.raises(Unavailable, match="gave up after"):
        read(reader, lambda seen: False)
