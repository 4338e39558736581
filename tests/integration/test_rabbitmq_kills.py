"""A job that reads queues, or streams, of RabbitMQ is killed, and so is the server: each message counts
once."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError

from tests.rabbitmq_server import WHY_NOT, RabbitServer

pytestmark = [pytest.mark.rabbitmq, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
JOBS = Path(__file__).parent / "jobs"
QUEUE_PROGRAM, STREAM_PROGRAM = JOBS / "rabbit_orders.py", JOBS / "rabbit_stream_orders.py"
KINDS = ("slot", "driver and slots", "server", "slot")
QUEUES = ("a", "b"), "classic", QUEUE_PROGRAM
STREAMS = ("orders-0", "orders-1"), "stream", STREAM_PROGRAM


@pytest.fixture
def server() -> Iterator[RabbitServer]:
    with RabbitServer() as server:
        yield server


class Producer:
    """Sends numbered messages until it is closed; what was not confirmed is sent again under the same id."""

    def __init__(self, server: RabbitServer, queues: tuple[str, ...], kind: str) -> None:
        self._server, self._over, self._queues = server, threading.Event(), queues
        self.sent = 0
        """How many are confirmed."""
        with closing(server.connect()) as connection:
            for queue in queues:
                arguments = {"x-queue-type": kind}
                connection.channel().queue_declare(queue, durable=True, arguments=arguments)
        server.restart()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            with suppress(AMQPError, OSError), closing(self._server.connect()) as connection:
                channel = connection.channel()
                for (
                    queue
                ) in self._queues:  # one that is not up yet may confirm what it drops, or never answer
                    channel.queue_declare(queue, passive=True)
                channel.confirm_delivery()
                while not self._over.wait(0.0005):
                    n = self.sent
                    properties = pika.BasicProperties(message_id=str(n), delivery_mode=2)
                    channel.basic_publish("", self._queues[n % 2], json.dumps({"n": n}).encode(), properties)
                    self.sent += 1

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def rows_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("out-*.jsonl") for line in path.read_text().splitlines()]


def seen(folder: Path) -> Counter[int]:
    return Counter(row["n"] for row in rows_in(folder))


def run_with_kills(
    what: tuple[tuple[str, ...], str, Path],
    kinds: list[str],
    server: RabbitServer,
    start_job: Any,
    engine: Any,
    folder: Path,
    master: str,
) -> None:
    queues, kind_of_queue, program = what
    chance = random.Random(len(kinds))

    def start() -> Any:
        arguments = (folder / "ck", server.url, str(folder / "out"))
        options = ["--slot-timeout", "3 s", "--restart", "fixed:200 ms"]
        return start_job(*arguments, program=program, master=master, interval="200 ms", options=options)

    producer = Producer(server, queues, kind_of_queue)
    job = start()
    for kind in kinds:
        before, mark = seen(folder / "out").total(), job.mark
        engine.wait_for(
            lambda count=before: seen(folder / "out").total() > count + chance.randrange(200), job
        )
        if kind == "driver and slots":
            job.kill_group()
            job.wait()
            job = start()
        elif kind == "server":
            server.kill()
            server.start()
        else:
            os.kill(chance.choice(job.slots()), signal.SIGKILL)
            job.wait_event("restarted", after=mark, timeout=360)
    producer.close()
    engine.wait_for(lambda: len(seen(folder / "out")) >= producer.sent, job, 120)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    found = seen(folder / "out")
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
    run_with_kills(what, ["driver and slots", "server"], server, start_job, engine, tmp_path, "threads[2]")


@pytest.mark.soak
@pytest.mark.spark
@QUEUES_AND_STREAMS
def test_twenty_four_kills(
    what: Any, server: RabbitServer, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    run_with_kills(what, [*KINDS] * 6, server, start_job, engine, tmp_path, "local[2]")
