"""Streams of RabbitMQ as a stream of Spark, killed."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.test_structured_streaming_any_source import KILLS, KilledCopy, batches, in_files
from tests.rabbitmq_server import WHY_NOT as NO_RABBITMQ
from tests.rabbitmq_server import RabbitServer

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

STREAMS = ("killed-0", "killed-1")


class KilledMessages(KilledCopy):
    """A query from two streams of RabbitMQ to files."""

    def __init__(self, folder: Path, server: RabbitServer) -> None:
        self.server = server
        self.sent = 0
        options = {"streams": ",".join(STREAMS), "url": server.url, "maxRecordsPerTrigger": "120"}
        super().__init__(folder, "onceflow-rabbitmq-stream", **options)

    def add_batch(self) -> None:
        with closing(self.server.connect()) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for stream in STREAMS:
                channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
                for n in range(self.sent, self.sent + 150):
                    channel.basic_publish("", stream, json.dumps({"id": n, "user": "u"}).encode())
                self.sent += 150


@pytest.mark.rabbitmq
@pytest.mark.skipif(bool(NO_RABBITMQ), reason=NO_RABBITMQ)
def test_each_message_of_streams_is_written_once_whoever_is_killed(tmp_path: Path) -> None:
    with RabbitServer() as server:
        query = KilledMessages(tmp_path, server)
        try:
            for whom, window in KILLS:
                query.kill(whom, window)
        finally:
            query.close()
        ids = [row["id"] for row in in_files(tmp_path / "out")]
        assert sorted(ids) == list(range(query.sent))
        assert batches(tmp_path) > len(KILLS)
