"""A job that reads queues, or streams, of RabbitMQ is killed, and so is the server: each message counts
once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError

from tests.integration.killed_sources import DRIVER, SERVER, SLOT, Producer, rows_in, run_with_kills
from tests.rabbitmq_server import WHY_NOT, RabbitServer

pytestmark = [pytest.mark.rabbitmq, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
JOBS = Path(__file__).parent / "jobs"
QUEUE_PROGRAM, STREAM_PROGRAM = JOBS / "rabbit_orders.py", JOBS / "rabbit_stream_orders.py"
KINDS = (SLOT, DRIVER, SERVER, SLOT)
QUEUES = ("a", "b"), "classic", QUEUE_PROGRAM
STREAMS = ("orders-0", "orders-1"), "stream", STREAM_PROGRAM


@pytest.fixture
def server() -> Iterator[RabbitServer]:
    with RabbitServer() as server:
        yield server


def producer_of(server: RabbitServer, queues: tuple[str, ...], kind: str) -> Producer:
    """Sends to the queues in turn; what was not confirmed is sent again under the same id."""
    with closing(server.connect()) as connection:
        for queue in queues:
            arguments = {"x-queue-type": kind}
            connection.channel().queue_declare(queue, durable=True, arguments=arguments)
    server.restart()

    @contextmanager
    def connect() -> Iterator[Callable[[int], int]]:
        with closing(server.connect()) as connection:
            channel = connection.channel()
            for queue in queues:  # one that is not up yet may confirm what it drops, or never answer
                channel.queue_declare(queue, passive=True)
            channel.confirm_delivery()

            def send(n: int) -> int:
                properties = pika.BasicProperties(message_id=str(n), delivery_mode=2)
                channel.basic_publish("", queues[n % 2], json.dumps({"n": n}).encode(), properties)
                return 1

            yield send

    return Producer(connect, (AMQPError, OSError))


def check_kills(
    what: tuple[tuple[str, ...], str, Path],
    kinds: list[str],
    server: RabbitServer,
    start_job: Any,
    engine: Any,
    folder: Path,
    master: str,
) -> None:
    queues, kind_of_queue, program = what

    def start() -> Any:
        arguments = (folder / "ck", server.url, str(folder / "out"))
        options = ["--slot-timeout", "3 s", "--restart", "fixed:200 ms"]
        return start_job(*arguments, program=program, master=master, interval="200 ms", options=options)

    def restart_server() -> None:
        server.kill()
        server.start()

    producer = producer_of(server, queues, kind_of_queue)
    found = run_with_kills(kinds, start, producer, engine, folder / "out", restart_server=restart_server)
    assert set(found) >= set(range(producer.sent))
    assert len(found) - producer.sent in (0, 1), "the last may have come without being confirmed"
    # A stream keeps both of what its producer sent twice: there a message is known by its place.
    each = Counter((row.get("of"), row.get("at", row["n"])) for row in rows_in(folder / "out"))
    assert set(each.values()) == {1}


QUEUES_AND_STREAMS = pytest.mark.parametrize("what", [QUEUES, STREAMS], ids=["queues", "streams"])


@QUEUES_AND_STREAMS
def test_each_message_counts_once_whoever_is_killed(
    what: Any, server: RabbitServer, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    """On threads a slot dies with its driver; the soak below kills those of Spark."""
    check_kills(what, [DRIVER, SERVER], server, start_job, engine, tmp_path, "threads[2]")


@pytest.mark.soak
@pytest.mark.spark
@QUEUES_AND_STREAMS
def test_twenty_four_kills(
    what: Any, server: RabbitServer, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    check_kills(what, [*KINDS] * 6, server, start_job, engine, tmp_path, "local[2]")
