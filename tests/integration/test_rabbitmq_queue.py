"""RabbitQueueSource on a real RabbitMQ: the contract, what is delivered again, and what is refused."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar

import pika
import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.rabbitmq import RabbitQueueSource
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import BadRecordError, Fatal, Unavailable
from onceflow.sinks.print import PrintSink
from onceflow.testing.kit import QueueKit
from tests.integration.read_queues import WAIT_S, barrier, numbers, open_reader, read
from tests.rabbitmq_server import WHY_NOT, RabbitServer

pytestmark = [pytest.mark.rabbitmq, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture(scope="module")
def server() -> Iterator[RabbitServer]:
    with RabbitServer() as server:
        yield server


def publish(server: RabbitServer, queue: str, numbers: Sequence[int], **options: Any) -> None:
    """Messages with these numbers, known by them."""
    with closing(server.connect()) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        for n in numbers:
            given = {"message_id": f"m{n}", "delivery_mode": 2, **options}
            channel.basic_publish("", queue, json.dumps({"n": n}).encode(), pika.BasicProperties(**given))


def new_queue() -> str:
    return f"q{uuid.uuid4().hex[:10]}"


class TestQueue(QueueKit):
    count: ClassVar[int] = 9

    @pytest.fixture(autouse=True)
    def _server(self, server: RabbitServer) -> None:
        self.server = server
        self.settings["url"] = server.url

    def prepare(self) -> None:
        queue = self.settings["queue"] = new_queue()
        publish(self.server, queue, range(self.count))

    def source(self) -> RabbitQueueSource:
        queue, url = str(self.settings["queue"]), str(self.settings["url"])
        return RabbitQueueSource(queues=[queue], url=url, value=Json(SCHEMA), bounded=True)

    def waiting(self) -> int:
        return self.server.messages(str(self.settings["queue"]))


# --- Readers --------------------------------------------------------------------------------------------


def source_of(server: RabbitServer, queue: str, **options: Any) -> RabbitQueueSource:
    return RabbitQueueSource(queues=[queue], url=server.url, value=Json(SCHEMA), **options)


def test_what_is_known_of_a_message_comes_beside_it(server: RabbitServer) -> None:
    queue = new_queue()
    publish(server, queue, [7], headers={"key": "k1"})
    source = source_of(server, queue, id_header="key", id_column="id", routing_key_column="to")
    with closing(open_reader(source)) as reader:
        assert read(reader, lambda seen: len(seen) == 1) == [{"n": 7, "id": "k1", "to": queue}]


def test_a_message_that_is_sent_twice_counts_once(server: RabbitServer) -> None:
    queue = new_queue()
    publish(server, queue, [1, 1, 2])
    with closing(open_reader(source_of(server, queue))) as reader:
        assert numbers(read(reader, lambda seen: len(seen) == 2)) == [1, 2]


def test_a_server_that_is_killed_delivers_again_and_nothing_counts_twice() -> None:
    """Acknowledged just before the kill, held, and not yet read: each counts once."""
    with RabbitServer() as server:
        publish(server, "q", range(300))
        with closing(open_reader(source_of(server, "q"))) as reader:
            rows = read(reader, lambda seen: len(seen) >= 100, 100)
            barrier(reader, 1)
            rows += read(reader, lambda seen: len(seen) >= 100, 100)
            reader.on_completed(1)
            server.kill()
            server.start()
            publish(server, "q", range(300, 310))
            before = len(rows)  # a batch may have brought more than was asked for
            rows += read(reader, lambda seen: before + len(seen) >= 310)
            barrier(reader, 2)
            reader.on_completed(2)
            assert numbers(rows) == list(range(310))
            server.wait_until_empty("q")


def test_a_second_consumer_waits_and_is_told(server: RabbitServer) -> None:
    queue = new_queue()
    publish(server, queue, [1])
    with closing(open_reader(source_of(server, queue))) as first:
        read(first, lambda seen: len(seen) == 1)
        with (
            closing(open_reader(source_of(server, queue, timeout="50 ms"))) as second,
            pytest.raises(Unavailable, match="has another consumer, and one may read it at a time"),
        ):
            read(second, lambda seen: False)


def test_messages_without_an_id_are_refused(server: RabbitServer) -> None:
    queue = new_queue()
    publish(server, queue, [1], message_id=None)
    with closing(open_reader(source_of(server, queue))) as reader, pytest.raises(Fatal, match="has no id"):
        read(reader, lambda seen: False)


def test_what_is_no_row_ends_the_job_or_goes_to_the_dead_letters(server: RabbitServer) -> None:
    queue = new_queue()
    publish(server, queue, [1])
    strict = source_of(server, queue)
    other = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    bad = RabbitQueueSource(queues=[queue], url=server.url, value=Json(other))
    with closing(open_reader(bad)) as reader, pytest.raises(BadRecordError, match="message 'm1' of q"):
        read(reader, lambda seen: False)
    tolerant = RabbitQueueSource(queues=[queue], url=server.url, value=Json(other), dead_letters=PrintSink())
    with closing(open_reader(tolerant)) as reader:
        deadline = time.monotonic() + WAIT_S
        while (fetch := reader.poll(0, 10)) is None:
            assert time.monotonic() < deadline
            threading.Event().wait(0.002)
        (letter,) = fetch.dead_letters.to_pylist()
    assert (letter["topic"], letter["key"], letter["value"]) == (queue, b"m1", b'{"n": 1}')
    with closing(open_reader(strict)) as reader:
        assert numbers(read(reader, lambda seen: len(seen) == 1)) == [1]


def test_checkpoints_that_are_too_rare_end_the_job_before_the_server_takes_messages_away(
    server: RabbitServer,
) -> None:
    queue, clock = new_queue(), ManualClock()
    publish(server, queue, [1])
    with closing(open_reader(source_of(server, queue, consumer_timeout="1 min"), clock=clock)) as reader:
        read(reader, lambda seen: len(seen) == 1)
        clock.advance(20_000)
        barrier(reader, 1)
        reader.on_completed(1)
        clock.advance(100_000)
        assert reader.poll(0, 10) is None, "all is acknowledged"
        publish(server, queue, [2])
        read(reader, lambda seen: len(seen) == 1)
        clock.advance(30_000)
        with pytest.raises(
            Fatal, match=r"for 30 s no checkpoint was completed.*make the checkpoint interval"
        ):
            reader.poll(0, 10)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("amqp://127.0.0.1:{port}/", "is not there: declare it"),
        ("amqp://{who}@127.0.0.1:{port}/", "does not let it in"),
        (
            "amqp://${{NO_SUCH_VARIABLE}}@127.0.0.1:{port}/",
            "names the environment variable 'NO_SUCH_VARIABLE'",
        ),
    ],
)
def test_what_lacks_is_one_sentence(url: str, said: str, server: RabbitServer) -> None:
    source = RabbitQueueSource(
        queues=["nothing"], url=url.format(port=server.port, who="nobody:wrong"), value=Json(SCHEMA)
    )
    with closing(open_reader(source)) as reader, pytest.raises(Fatal, match=said):
        read(reader, lambda seen: False)


def test_a_queue_that_is_deleted_ends_the_job(server: RabbitServer) -> None:
    queue = new_queue()
    publish(server, queue, [1])
    with closing(open_reader(source_of(server, queue))) as reader:
        read(reader, lambda seen: len(seen) == 1)
        with closing(server.connect()) as connection:
            connection.channel().queue_delete(queue)
        with pytest.raises(Fatal, match="was deleted while it was read"):
            read(reader, lambda seen: False)
