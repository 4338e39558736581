"""All fetchers answer the same, whatever is on the topics; the bulk ones outlive what may happen to them.

They are driven without a reader here. A bulk fetcher that is wrong ends the process, so a test that
comes to its end has shown something.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow.connectors.kafka.fetch.backlog import DirectFetcher
from onceflow.connectors.kafka.fetch.direct_reading import DirectReading
from onceflow.connectors.kafka.fetch.lane_opener import fetch_settings
from onceflow.connectors.kafka.fetch.librdkafka_queue import BulkFetcher
from onceflow.connectors.kafka.fetch.per_message import MessageFetcher
from onceflow.connectors.kafka.fetched import HEADERS_TYPE, Fetched, Fetcher, Wanted
from onceflow.connectors.kafka.librdkafka.library import (
    UnsupportedLibraryError,
    _loaded_libraries,
    load_library,
)
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.connectors.kafka.split import KafkaSplit

pytestmark = pytest.mark.kafka

KINDS = ["bulk", "direct"]

DEADLINE_S = 240
EAGERLY = DirectReading(records_behind=1, full_fetches=0, pause_s=0.5)
ALL = Wanted(key=True, timestamp=True, headers=True, details=True)
Row = tuple[Any, ...]


@dataclass
class Driven:
    """A fetcher of some partitions, and what it brought."""

    consumer: Consumer
    fetcher: Fetcher
    splits: SplitTable
    records_max: int
    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[int, int] = field(default_factory=dict)
    errors: list[KafkaError] = field(default_factory=list)
    largest: int = 0
    types: set[pa.DataType] = field(default_factory=set)

    def positions(self, *offsets: int) -> list[TopicPartition]:
        """All splits at these offsets; none given: at 0."""
        pairs = zip(self.splits.splits, offsets or [0] * len(self.splits.splits), strict=True)
        return [TopicPartition(split.topic, split.partition, offset) for split, offset in pairs]

    def fetch(self, timeout_ms: int = 50) -> Fetched:
        """One fetch, remembered."""
        fetched = self.fetcher.fetch(timeout_ms, self.records_max)
        self.largest = max(self.largest, len(fetched))
        values: Any = fetched.value
        if isinstance(values, pa.Array):
            values.validate(full=True)
            self.types.add(values.type)
            values = values.to_pylist()
        keys: Any = fetched.key
        keys = keys.to_pylist() if isinstance(keys, pa.Array) else keys
        if fetched.headers is not None:
            fetched.headers.validate(full=True)
            assert fetched.headers.type == HEADERS_TYPE
            assert len(fetched.headers) == len(fetched)
        split = fetched.row_split.tolist()
        offset = fetched.offset.tolist()
        assert len(values) == len(split) == len(offset) == len(fetched)
        for row in range(len(fetched)):
            found: Row = (offset[row], values[row])
            if keys is not None:
                found += (keys[row],)
            if fetched.timestamp_ms is not None:
                assert fetched.time_kind is not None
                found += (int(fetched.time_kind[row]), int(fetched.timestamp_ms[row]))
            if fetched.headers is not None:
                found += (fetched.headers[row].as_py(),)
            if fetched.details is not None:
                found += tuple(fetched.details(row))
            self.rows[self.splits.ids[split[row]]].append(found)
        for notice in fetched.notices:
            if notice.error.code() == KafkaError._PARTITION_EOF:
                if notice.split not in split[notice.after :]:
                    self.ends[notice.split] = notice.offset
            else:
                self.errors.append(notice.error)
        return fetched

    def until(self, condition: Callable[[], bool], timeout_ms: int = 50) -> Driven:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, ({k: len(v) for k, v in self.rows.items()}, self.ends)
            self.fetch(timeout_ms)
        return self

    def to_the_end(self) -> Driven:
        return self.until(lambda: len(self.ends) == len(self.splits.splits))

    def offsets(self) -> dict[str, list[int]]:
        return {name: [row[0] for row in rows] for name, rows in self.rows.items()}


Drive = Callable[..., Driven]


def topic_ids(servers: str, places: list[tuple[str, int]]) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    answer = admin.describe_topics(TopicCollection(sorted({topic for topic, _ in places})))
    return {topic: str(future.result(30).topic_id) for topic, future in answer.items()}


@pytest.fixture
def drive(broker: Any) -> Iterator[Drive]:
    """`drive("bulk", [("topic", 0)])`: a fetcher, nothing assigned yet."""
    driven: list[Driven] = []

    def make(
        kind: str, places: list[tuple[str, int]], wanted: Wanted = ALL, records_max: int = 1_000,
        servers: str = "", settings: dict[str, Any] | None = None, *, room: int = 1_000, **options: Any,
    ) -> Driven:  # fmt: skip
        consumer = Consumer(
            {
                "bootstrap.servers": servers or broker.bootstrap_servers,
                "group.id": "fetchers",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.queue.backoff.ms": 20,
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "error_cb": lambda _: None,
                "log_level": 0,
                **(settings or {}),
            }
        )
        ids = topic_ids(servers or broker.bootstrap_servers, places) if kind == "direct" else {}
        splits = SplitTable()
        splits.add([KafkaSplit(topic, ids.get(topic, ""), partition, 0) for topic, partition in places])
        fetcher: Fetcher
        if kind == "messages":
            fetcher = MessageFetcher(consumer, splits, wanted)
        else:
            try:
                library = load_library()
            except UnsupportedLibraryError as reason:
                pytest.skip(str(reason))
            handle = library.handle(consumer, "rdkafka")
            fetcher = BulkFetcher(library, handle, consumer, splits, wanted, room, **options)
            if kind == "direct":
                direct = fetch_settings(settings or {}, EAGERLY)
                assert direct is not None
                fetcher = DirectFetcher(fetcher, consumer, splits, wanted, room, direct)
        driven.append(Driven(consumer, fetcher, splits, records_max))
        return driven[-1]

    yield make
    for one in driven:
        one.fetcher.close()
        one.consumer.close()


# --- The same answer ------------------------------------------------------------------------------


def hostile(servers: str, topics: list[str], seed: int) -> None:
    """Records of every kind: what may be null is, sizes from nothing to a megabyte, every compression,
    transactions that commit and that don't."""
    chosen = random.Random(seed)
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        for outcome in ("plain", "commit", "abort"):
            settings = {
                "bootstrap.servers": servers,
                "log_level": 0,
                "compression.type": compression,
                "linger.ms": 5,
            }
            if outcome != "plain":
                settings["transactional.id"] = f"{topics[0]}-{compression}-{outcome}"
            producer = Producer({**settings, "message.max.bytes": 4_000_000})
            if outcome != "plain":
                producer.init_transactions(30)
                producer.begin_transaction()
            for _ in range(120):
                size = chosen.choice([0, 0, 1, 10, 100, 1_000])
                value = chosen.choice([None, b"", chosen.randbytes(size), b"x" * size])
                headers = [
                    (
                        chosen.choice(["h", "", "Zürich"]),
                        chosen.choice([None, b"", b"1", chosen.randbytes(9)]),
                    )
                    for _ in range(chosen.randrange(4))
                ]
                producer.produce(
                    chosen.choice(topics),
                    value,
                    chosen.choice([None, b"", b"key", chosen.randbytes(5)]),
                    partition=chosen.randrange(3),
                    timestamp=chosen.choice([0, 1, 1_700_000_000_000]),
                    headers=headers or None,
                )
            producer.produce(chosen.choice(topics), chosen.randbytes(1 << 20), partition=0)
            producer.flush(30)
            if outcome == "commit":
                producer.commit_transaction(30)
            elif outcome == "abort":
                producer.abort_transaction(30)


def test_all_fetchers_bring_the_same_of_hostile_topics(broker: Any, new_topic: Any, drive: Drive) -> None:
    large = {"max.message.bytes": "4000000"}
    topics = [
        new_topic("hostile", 3, large),
        new_topic("appended", 3, {**large, "message.timestamp.type": "LogAppendTime"}),
    ]
    hostile(broker.bootstrap_servers, topics, seed=7)
    places = list(itertools.product(topics, range(3)))
    found: dict[tuple[object, ...], Driven] = {}
    ways: list[tuple[str, int, dict[str, int]]] = [("messages", 1_000, {})]
    for kind in KINDS:
        ways += [(kind, 1_000, {}), (kind, 7, {}), (kind, 1_000, {"room": 7})]
    ways.append(("bulk", 1_000, {"binary_bytes_max": 5_000}))
    for kind, records_max, options in ways:
        one = drive(kind, places, records_max=records_max, **options)
        one.fetcher.assign(one.positions())
        one.to_the_end()
        assert not one.errors
        assert one.largest <= options.get("room", records_max)
        found[kind, records_max, *options] = one
    expected = found["messages", 1_000]
    assert sum(map(len, expected.rows.values())) == 10 * 121  # none of the aborted
    for one in found.values():
        assert one.rows == expected.rows
        assert one.ends == expected.ends
    assert found["bulk", 1_000].types == {pa.binary()}
    assert pa.large_binary() in found["bulk", 1_000, "binary_bytes_max"].types


@pytest.mark.parametrize("bulk", KINDS)
@pytest.mark.parametrize(
    "wanted",
    [Wanted(), Wanted(key=True), Wanted(timestamp=True), Wanted(headers=True), Wanted(details=True)],
)
def test_what_is_not_wanted_is_not_there(
    broker: Any, new_topic: Any, drive: Drive, wanted: Wanted, bulk: str
) -> None:
    topic = new_topic("wanted")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    producer.produce(topic, b"v", b"k", headers=[("h", b"1")])
    producer.flush(30)
    both = []
    for kind in ("messages", bulk):
        one = drive(kind, [(topic, 0)], wanted)
        one.fetcher.assign(one.positions())
        both.append(one.until(lambda one=one: bool(one.rows)).rows)
    assert both[0] == both[1]
    assert len(both[0][f"{topic}-0"][0]) == (
        2 + wanted.key + 2 * wanted.timestamp + wanted.headers + 3 * wanted.details
    )


@pytest.mark.parametrize("kind", ["messages", *KINDS])
def test_an_offset_that_is_not_there_is_an_error_of_its_split(
    new_topic: Any, drive: Drive, kind: str
) -> None:
    topic = new_topic("range", 2)
    one = drive(kind, [(topic, 0), (topic, 1)])
    one.fetcher.assign(one.positions(5, 0))
    notices = []
    deadline = time.monotonic() + DEADLINE_S
    while not any(n.error.code() == KafkaError._AUTO_OFFSET_RESET for n in notices):
        assert time.monotonic() < deadline
        notices += one.fetch().notices
    (error,) = {n for n in notices if n.error.code() == KafkaError._AUTO_OFFSET_RESET}
    assert error.split == 0
    assert "ut of range" in error.error.str()


# --- What may happen to the bulk ones --------------------------------------------------------------


def produce(servers: str, topic: str, count: int, partitions: int) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "log_level": 0, "queue.buffering.max.messages": 1_000_000}
    )
    for i in range(count):
        producer.produce(topic, b"%d" % i, partition=i % partitions)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("bulk", KINDS)
def test_a_partition_assigned_anew_right_after_it_was_let_go_is_read_on(
    broker: Any, new_topic: Any, drive: Drive, bulk: str
) -> None:
    """librdkafka ends the first reading later than it says, and what was forwarded with it."""
    topic = new_topic("again", 3)
    produce(broker.bootstrap_servers, topic, 3_000, 3)
    one = drive(bulk, [(topic, partition) for partition in range(3)], Wanted(), 50)
    chosen = random.Random(3)
    one.fetcher.assign(one.positions())
    for _ in range(60):
        one.fetch(chosen.choice([0, 1, 20]))
        start = chosen.randrange(1_000)
        one.fetcher.unassign(one.positions())
        one.fetcher.assign(one.positions(start, start, start))
        one.rows.clear()
        one.ends.clear()
        if chosen.random() < 0.3:
            one.to_the_end()
            assert one.offsets() == {
                f"{topic}-{partition}": list(range(start, 1_000)) for partition in range(3)
            }
            one.fetcher.unassign(one.positions())
            one.fetcher.assign(one.positions())


def waiting_for_the_consumer(one: Driven) -> int:
    """How much is on the consumer's own queue."""
    path = next(path for path in _loaded_libraries() if "librdkafka" in Path(path).name)
    library = ctypes.CDLL(path)
    library.rd_kafka_queue_get_consumer.restype = ctypes.c_void_p
    library.rd_kafka_queue_length.restype = ctypes.c_size_t
    handle = load_library().handle(one.consumer, "rdkafka")
    queue = ctypes.c_void_p(library.rd_kafka_queue_get_consumer(ctypes.c_void_p(handle)))
    length: int = library.rd_kafka_queue_length(queue)
    library.rd_kafka_queue_destroy(queue)
    return length


def test_records_that_come_another_way_are_said_to_be_lost_and_read_again(
    broker: Any, new_topic: Any, drive: Drive
) -> None:
    topic = new_topic("stray", 2)
    produce(broker.bootstrap_servers, topic, 2_000, 2)
    one = drive("bulk", [(topic, 0), (topic, 1)], Wanted())
    positions = one.positions()
    one.consumer.incremental_assign(positions[:1])  # not through the fetcher: onto the consumer's queue
    deadline = time.monotonic() + DEADLINE_S
    while (
        waiting_for_the_consumer(one) < 1_000
    ):  # no fetch before: it would drop them, as of no split of its own
        assert time.monotonic() < deadline
    one.fetcher.assign(positions[1:])
    with pytest.raises(KafkaException, match="already"):
        one.fetcher.assign(positions[:1])
    lost: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    while not lost:
        assert time.monotonic() < deadline
        lost.update(one.fetch().lost)
    assert lost == {0}
    assert one.rows[f"{topic}-0"] == []
    one.until(lambda: len(one.rows[f"{topic}-1"]) == 1_000)
    one.fetcher.unassign(positions[:1])
    one.fetcher.assign(positions[:1])
    one.until(lambda: len(one.rows[f"{topic}-0"]) == 1_000)
    assert one.fetch().lost == frozenset()
    assert one.offsets() == {f"{topic}-0": list(range(1_000)), f"{topic}-1": list(range(1_000))}


@pytest.mark.slow
@pytest.mark.parametrize("bulk", KINDS)
def test_callbacks_run_in_our_thread_and_nowhere_else_while_brokers_die(
    module_broker: Callable[..., Any], drive: Drive, caplog: pytest.LogCaptureFixture, bulk: str
) -> None:
    """Errors, statistics every millisecond and a log of everything, under load, through two deaths."""
    mortal = module_broker()
    topic = mortal.create_topic("stress", 4)
    produce(mortal.bootstrap_servers, topic, 60_000, 4)
    threads: dict[str, set[int]] = defaultdict(set)
    calls: dict[str, int] = defaultdict(int)

    def note(name: str) -> Callable[[Any], None]:
        def called(_: Any) -> None:
            threads[name].add(threading.get_ident())
            calls[name] += 1

        return called

    logger = logging.getLogger(f"stress-{bulk}")
    logger.addFilter(lambda record: note("log")(record) or False)
    one = drive(
        bulk, [(topic, partition) for partition in range(4)], Wanted(), 500, mortal.bootstrap_servers,
        {
            "statistics.interval.ms": 1, "stats_cb": note("stats"), "error_cb": note("error"),
            "logger": logger, "debug": "broker,fetch,queue", "log_level": 7,
            "queued.min.messages": 1_000, "queued.max.messages.kbytes": 64,
        },
    )  # fmt: skip
    one.fetcher.assign(one.positions())
    for died in range(2):
        one.until(lambda died=died: sum(map(len, one.rows.values())) > died * 20_000, timeout_ms=1)
        mortal.kill()
        errors = calls["error"]
        one.until(lambda errors=errors: calls["error"] > errors, timeout_ms=1)
        mortal.start()
    one.until(lambda: sum(map(len, one.rows.values())) >= 60_000)
    assert one.offsets() == {f"{topic}-{partition}": list(range(15_000)) for partition in range(4)}
    assert threads == {name: {threading.get_ident()} for name in ("stats", "error", "log")}
    assert calls["stats"] > 100


def test_what_a_callback_raises_comes_out_of_fetch(drive: Drive) -> None:
    class RefusedError(Exception):
        pass

    refusals = iter([RefusedError("mine")])

    def refuse(_: KafkaError) -> None:
        for refusal in refusals:
            raise refusal

    one = drive("bulk", [("nowhere", 0)], servers="127.0.0.1:1", settings={"error_cb": refuse})
    one.fetcher.assign(one.positions())
    with pytest.raises(RefusedError, match="mine"):
        one.until(lambda: False)
