"""A direct fetch from a broker that is played here: what is wrong with one partition takes that one out, and
nothing else; throttling is waited for; the leader's epoch of what was read goes with every question."""

from __future__ import annotations

import base64
import logging
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, TopicPartition
from kafka.record.default_records import DefaultRecordBatchBuilder

from onceflow.connectors.kafka.fetched import Fetched, Wanted
from onceflow.connectors.kafka.protocol.broker_socket import read_frame
from onceflow.connectors.kafka.protocol.wire import compact_length, framed
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.connectors.kafka.split import KafkaSplit
from onceflow.runtime.kernels.ops import ops

if not ops().are_compiled:
    pytest.skip("needs numba", allow_module_level=True)

from onceflow.connectors.kafka.fetch.backlog import DirectFetcher
from onceflow.connectors.kafka.fetch.direct_reading import AS_USERS_DO, DirectReading
from onceflow.connectors.kafka.fetch.lane_opener import fetch_settings

DEADLINE_S = 80
TOPIC_ID = bytes(range(16))
FAR = 1 << 40

NOT_LEADER, TIMED_OUT, OUT_OF_RANGE, FENCED_EPOCH, UNKNOWN_EPOCH = 6, 7, 1, 74, 75


class Asked(NamedTuple):
    """What a request asks of one partition."""

    partition: int
    current_epoch: int
    offset: int
    last_epoch: int


@dataclass
class Answer:
    """What is answered for one partition."""

    data: bytes = b""
    error: int = 0
    diverging: tuple[int, int] | None = None
    end: int = FAR

    def encoded(self, partition: int) -> bytes:
        tags = b"\0"
        if self.diverging is not None:
            end = struct.pack(">iq", *self.diverging) + b"\0"
            tags = b"\1\0" + bytes([len(end)]) + end
        head = struct.pack(">ihqqq", partition, self.error, self.end, self.end, 0)
        return head + b"\1" + struct.pack(">i", -1) + compact_length(len(self.data)) + self.data + tags


def batch(offset: int, count: int, epoch: int) -> bytes:
    """A batch in a log; the value of each record is its offset."""
    builder: Any = DefaultRecordBatchBuilder(2, 0, False, -1, 0, 0, 1 << 20)
    for number in range(count):
        builder.append(number, 0, None, b"%d" % (offset + number), [])
    built = bytearray(builder.build())
    struct.pack_into(">q", built, 0, offset)
    struct.pack_into(">i", built, 12, epoch)
    return bytes(built)


def spoilt(data: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    return bytes(changed)


Script = Callable[[int, Asked], Answer]
"""The answer, given the number of the request and what it asks of one partition."""


@dataclass
class PlayedBroker:
    """Speaks Fetch 13 with one client after the other, as its script says."""

    script: Script
    throttle_ms: Callable[[int], int] = lambda number: 0
    refusal: Callable[[int], int] = lambda number: 0
    """The error with which a request is refused as a whole; 0: it is not."""
    requests: list[list[Asked]] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(DEADLINE_S)

    def _serve(self) -> None:
        try:
            while True:
                client, _ = self._server.accept()
                with client:
                    self._converse(client)
        except OSError:
            return

    def _converse(self, client: socket.socket) -> None:
        try:
            read_frame(client)
            client.sendall(framed(struct.pack(">ihihhh", 0, 0, 1, 1, 4, 18)))
            while True:
                request = read_frame(client)
                self.times_s.append(time.monotonic())
                client.sendall(self._answer(request))
        except ConnectionResetError:
            return

    def _answer(self, request: bytes) -> bytes:
        number = len(self.requests)
        correlation, name = struct.unpack_from(">ih", request, 4)
        at = 11 + name + struct.calcsize(">iiiibii") + 1 + 16
        count, at = request[at] - 1, at + 1
        fields = [struct.unpack_from(">iiqiqi", request, at + 33 * i) for i in range(count)]
        asked = [Asked(*each[:4]) for each in fields]
        self.requests.append(asked)
        body = b"".join(self.script(number, each).encoded(each.partition) for each in asked)
        head = struct.pack(">ibihi", correlation, 0, self.throttle_ms(number), self.refusal(number), 0)
        return framed(head + b"\2" + TOPIC_ID + compact_length(count) + body + b"\0\0")


class Others:
    """Instead of librdkafka: has nothing, or of each partition record after record, and remembers what it was
    given."""

    is_behind = True

    def __init__(self, has_records: bool) -> None:
        self.given: list[TopicPartition] = []
        self._has_records = has_records
        self._next: dict[int, int] = {}

    def assign(self, positions: Sequence[TopicPartition]) -> None:
        self.given += positions
        self._next.update({each.partition: each.offset for each in positions})

    def unassign(self, positions: Sequence[TopicPartition]) -> None:
        for each in positions:
            del self._next[each.partition]

    def fetch(self, timeout_ms: int, records_max: int) -> Fetched:
        found = dict(self._next) if self._has_records else {}
        self._next.update({number: offset + 1 for number, offset in found.items()})
        values = pa.array([b"%d" % offset for offset in found.values()], pa.binary())
        return Fetched(values, np.array([*found], np.uint16), np.array([*found.values()], np.int64))

    def close(self) -> None: ...


class Reading:
    """A DirectFetcher that reads partitions, each from this offset on and behind this epoch."""

    def __init__(
        self, broker: PlayedBroker, starts: Sequence[tuple[int, int]], reading: DirectReading | None = None
    ) -> None:
        """`reading`: None: what was given back is left to librdkafka, which has nothing."""
        self.others = Others(has_records=reading is not None)
        self.led_by = dict.fromkeys(range(len(starts)), broker)
        """Which broker leads each partition, for whoever asks."""
        self.throttled: list[int] = []
        self.offsets: dict[int, list[int]] = {number: [] for number in range(len(starts))}
        self.epochs: dict[int, int] = {}
        self.ended: list[int] = []
        splits = SplitTable()
        topic_id = base64.urlsafe_b64encode(TOPIC_ID).decode().rstrip("=")
        splits.add([KafkaSplit("t", topic_id, number, 0, FAR) for number in range(len(starts))])
        consumer: Any = SimpleNamespace(
            list_topics=self._metadata, get_watermark_offsets=lambda where, cached: (0, FAR)
        )
        others: Any = self.others
        settings = fetch_settings({}, reading or AS_USERS_DO)
        assert settings is not None
        self.fetcher = DirectFetcher(
            others, consumer, splits, Wanted(), 1_000, settings, self.throttled.append
        )
        self.fetcher.assign(
            [TopicPartition("t", n, at, leader_epoch=epoch) for n, (at, epoch) in enumerate(starts)]
        )

    def _metadata(self, topic: str, timeout: float) -> Any:
        ports = sorted({broker.port for broker in self.led_by.values()})
        partitions = {n: SimpleNamespace(leader=broker.port) for n, broker in self.led_by.items()}
        brokers = {port: SimpleNamespace(id=port, host="127.0.0.1", port=port) for port in ports}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)}, brokers=brokers)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, (self.offsets, self.others.given)
            fetched = self.fetcher.fetch(50, 1_000)
            for split, offset in zip(fetched.row_split.tolist(), fetched.offset.tolist(), strict=True):
                self.offsets[split].append(offset)
            self.epochs.update(fetched.epochs)
            self.ended += [n.split for n in fetched.notices if n.error.code() == KafkaError._PARTITION_EOF]

    @property
    def given_back(self) -> list[tuple[int, int, int | None]]:
        """What went back to librdkafka: partition, offset, and the epoch of what was read before."""
        return [(each.partition, each.offset, each.leader_epoch) for each in self.others.given]


@pytest.fixture
def play() -> Iterator[Callable[..., PlayedBroker]]:
    played: list[PlayedBroker] = []

    def start(*args: Any, **options: Any) -> PlayedBroker:
        played.append(PlayedBroker(*args, **options))
        return played[-1]

    yield start
    for one in played:
        one.close()


@pytest.fixture
def read() -> Iterator[Callable[..., Reading]]:
    opened: list[Reading] = []

    def start(broker: PlayedBroker, *starts: tuple[int, int], **options: Any) -> Reading:
        opened.append(Reading(broker, starts, **options))
        return opened[-1]

    yield start
    for one in opened:
        one.fetcher.close()


Play = Callable[..., PlayedBroker]
Read = Callable[..., Reading]


def growing(asked: Asked, epoch: int = 3) -> Answer:
    """Two more records."""
    return Answer(batch(asked.offset, 2, epoch))


def test_each_question_tells_the_epoch_of_the_batch_before_it(play: Play, read: Read) -> None:
    broker = play(lambda number, asked: growing(asked, epoch=3 + number))
    reading = read(broker, (10, 2))
    reading.until(lambda: len(reading.offsets[0]) >= 8)  # so four questions were answered
    asked = [each for (each,) in broker.requests[:4]]
    assert [(each.offset, each.last_epoch) for each in asked] == [(10, 2), (12, 3), (14, 4), (16, 5)]
    assert {each.current_epoch for each in asked} == {-1}
    assert reading.epochs[0] == 2 + len(reading.offsets[0]) // 2, "that of the last batch read"


@pytest.mark.parametrize("error", [NOT_LEADER, TIMED_OUT, OUT_OF_RANGE, FENCED_EPOCH, UNKNOWN_EPOCH])
def test_a_partition_answered_with_an_error_leaves_alone(
    play: Play, read: Read, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    """Librdkafka gets it, with what was read before: it asks the leader whether that is lost."""
    caplog.set_level(logging.INFO, "onceflow")

    def script(number: int, asked: Asked) -> Answer:
        return Answer(error=error) if number == 2 and asked.partition == 1 else growing(asked)

    broker = play(script)
    reading = read(broker, (0, -1), (100, 1))
    reading.until(lambda: len(reading.offsets[0]) >= 20)
    assert reading.given_back == [(1, 104, 3)]
    assert reading.offsets[1] == [100, 101, 102, 103]
    assert reading.offsets[0] == list(range(len(reading.offsets[0])))
    assert f"reading t-1 from offset 104: offset 104 is answered with error {error}" in caplog.text


@pytest.mark.parametrize("times", [1, 3])
def test_a_leader_that_has_moved_is_looked_up_and_read_from(play: Play, read: Read, times: int) -> None:
    """Between, librdkafka reads; and also for as long as nobody admits to be the leader."""
    refusals: list[Asked] = []

    def script(number: int, asked: Asked) -> Answer:
        if asked.partition == 1 and number >= 2:
            refusals.append(asked)
            return Answer(error=NOT_LEADER)
        return growing(asked)

    old, new = play(script), play(lambda number, asked: growing(asked))
    reading = read(old, (0, -1), (100, 1), reading=DirectReading(full_fetches=1, pause_s=0.0))
    reading.until(lambda: len(refusals) >= times)
    reading.led_by[1] = new
    reading.until(lambda: len(new.requests) >= 3)
    reading.until(lambda: reading.offsets[1][-1] >= new.requests[2][0].offset)
    assert all(asked.partition == 1 for request in new.requests for asked in request)
    for first_offset, offsets in ((0, reading.offsets[0]), (100, reading.offsets[1])):
        assert offsets == list(range(first_offset, first_offset + len(offsets)))


@pytest.mark.parametrize("error", [NOT_LEADER, TIMED_OUT])
def test_a_request_refused_as_a_whole_leaves_the_broker_to_librdkafka(
    play: Play, read: Read, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    caplog.set_level(logging.INFO, "onceflow")
    broker = play(lambda number, asked: growing(asked), refusal=lambda number: error if number == 2 else 0)
    reading = read(broker, (0, 3), (100, 3))
    reading.until(lambda: len(reading.given_back) >= 2)
    assert sorted(reading.given_back) == [(0, 4, 3), (1, 104, 3)]
    assert f"Fetch is answered with error {error}" in caplog.text


def test_a_log_that_is_another_one_leaves_alone(
    play: Play, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "onceflow")

    def script(number: int, asked: Asked) -> Answer:
        return Answer(diverging=(2, 90)) if number == 1 and asked.partition == 1 else growing(asked)

    reading = read(play(script), (0, -1), (100, 3))
    reading.until(lambda: len(reading.offsets[0]) >= 20)
    assert reading.given_back == [(1, 102, 3)]
    assert "the batch before offset 102 was of leader epoch 3" in caplog.text
    assert "no more than epoch 2, up to 90" in caplog.text


LENGTH_AT, VERSION_AT, CRC_AT, FIRST_RECORD_AT = 8, 16, 17, 61


@pytest.mark.parametrize(
    ("at", "form", "value", "said"),
    [
        (
            LENGTH_AT,
            ">i",
            1 << 20,
            r"offset 104: among \d+ bytes from offset 104 on is no whole",
        ),
        (LENGTH_AT, ">i", 3, "offset 104: what follows on offset 104 are no record batches of version 2"),
        (VERSION_AT, ">b", 1, "offset 104: what follows on offset 104 are no record batches of version 2"),
        (FIRST_RECORD_AT, ">b", 99, "offset 104: the checksum of the batch at offset 104 is wrong"),
    ],
)
def test_a_batch_that_is_no_good_takes_its_partition_out_once(
    play: Play, read: Read, caplog: pytest.LogCaptureFixture, at: int, form: str, value: int, said: str
) -> None:
    caplog.set_level(logging.INFO, "onceflow")

    def script(number: int, asked: Asked) -> Answer:
        answer = growing(asked)
        if asked.partition == 1 and asked.offset == 104:
            answer.data = spoilt(answer.data, at, form, value)
        return answer

    broker = play(script)
    reading = read(broker, (0, -1), (100, 1))
    reading.until(lambda: len(reading.offsets[0]) >= 20)
    assert reading.given_back == [(1, 104, 3)]
    assert reading.offsets[1] == [100, 101, 102, 103]
    assert sum(each.offset == 104 and each.partition == 1 for asked in broker.requests for each in asked) == 1
    assert re.search(said, caplog.text)


def test_a_partition_for_which_there_was_no_room_is_asked_for_again_and_first(play: Play, read: Read) -> None:
    """Only the first one in an answer gets a batch that is larger than its share."""

    def script(number: int, asked: Asked) -> Answer:
        is_first = broker.requests[-1][0].partition == asked.partition
        return growing(asked) if is_first else Answer()

    broker = play(script)
    reading = read(broker, (0, -1), (100, 1), (200, 1))
    reading.until(lambda: all(len(offsets) >= 6 for offsets in reading.offsets.values()))
    assert not reading.given_back


def test_a_broker_that_throttles_is_waited_for_and_said_to_throttle(play: Play, read: Read) -> None:
    throttle_ms = 400
    broker = play(
        lambda number, asked: growing(asked), throttle_ms=lambda number: throttle_ms if number == 1 else 0
    )
    reading = read(broker, (0, -1), (100, 1))
    reading.until(lambda: len(broker.requests) >= 5)
    assert reading.throttled == [throttle_ms]
    assert not reading.given_back
    waited_s = [after - before for before, after in zip(broker.times_s, broker.times_s[1:], strict=False)]
    assert waited_s[1] >= throttle_ms / 1000
