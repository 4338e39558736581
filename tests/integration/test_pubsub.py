"""PubSubSource on Google's fake of Pub/Sub: the contract, what is held and delivered again, and what is
refused."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.pubsub import PubSubSource
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import BadRecordError, Fatal, Unavailable
from onceflow.sinks.print import PrintSink
from onceflow.testing.kit import QueueKit
from tests.integration.read_queues import WAIT_S, barrier, numbers, open_reader, read
from tests.pubsub_server import PROJECT, WHY_NOT, PubSubServer

pytestmark = [pytest.mark.pubsub, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
SCHEMA = pa.schema([("n", pa.int64())])
DEADLINE_S = 1
"""Shorter than Google's own takes."""


@pytest.fixture(scope="module")
def server() -> Iterator[PubSubServer]:
    with PubSubServer() as server:
        yield server


def publish(server: PubSubServer, name: str, values: Sequence[int], **of_each: Any) -> list[str]:
    return server.publish(name, [json.dumps({"n": n}).encode() for n in values], **of_each)


def new_name(server: PubSubServer) -> str:
    return server.create(f"s{uuid.uuid4().hex[:10]}")


def source_of(host: str, name: str, **options: Any) -> PubSubSource:
    given = {"value": Json(SCHEMA), "ack_deadline": f"{DEADLINE_S} s", **options}
    return PubSubSource(subscriptions=[name], project_id=PROJECT, emulator_host=host, **given)


class TestSubscription(QueueKit):
    count: ClassVar[int] = 4

    @pytest.fixture(autouse=True)
    def _server(self, server: PubSubServer) -> None:
        self.server = server
        self.settings["host"] = server.host

    def prepare(self) -> None:
        name = self.settings["name"] = new_name(self.server)
        publish(self.server, name, range(self.count))

    def source(self) -> PubSubSource:
        return source_of(str(self.settings["host"]), str(self.settings["name"]), until_quiet="1100 ms")

    def waiting(self) -> int:
        """How many nobody has acknowledged, once that has been so for a while: the reader does not wait for
        its acknowledgements."""
        name, deadline = str(self.settings["name"]), time.monotonic() + WAIT_S
        found, since = -1, time.monotonic()
        while time.monotonic() - since < 2:
            assert time.monotonic() < deadline
            if (now := self.server.waiting(name)) != found:
                found, since = now, time.monotonic()
            threading.Event().wait(0.05)
        return found


# --- Readers --------------------------------------------------------------------------------------------


def test_what_is_known_of_a_message_comes_beside_it(server: PubSubServer) -> None:
    name = new_name(server)
    (message_id,) = publish(server, name, [7], Attributes={"kind": "new"}, Key="k1")
    source = source_of(
        server.host,
        name,
        id_column="id",
        publish_time_column="at",
        ordering_key_column="key",
        attribute_columns={"what": "kind", "why": "reason"},
    )
    with closing(open_reader(source)) as reader:
        (row,) = read(reader, lambda seen: len(seen) == 1)
    assert abs(row.pop("at") - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=10)
    assert row == {"n": 7, "id": message_id, "key": "k1", "what": "new", "why": None}


def test_a_message_is_held_for_longer_than_its_deadline(server: PubSubServer) -> None:
    name = new_name(server)
    publish(server, name, [1, 2])
    with closing(open_reader(source_of(server.host, name, ack_deadline="5 s"))) as reader:
        assert numbers(read(reader, lambda seen: len(seen) == 2)) == [1, 2]
        threading.Event().wait(7)
        assert server.deliveries(name) == 2


def test_what_comes_again_after_a_restart_is_known_where_its_split_goes_on(server: PubSubServer) -> None:
    name = new_name(server)
    publish(server, name, range(5))
    with closing(open_reader(source_of(server.host, name))) as first:
        read(first, lambda seen: len(seen) == 5)
        position = barrier(first, 1)
    publish(server, name, [5])
    with closing(open_reader(source_of(server.host, name), position)) as second:
        assert numbers(read(second, lambda seen: len(seen) == 1)) == [5]
        deadline, checkpoint_id = time.monotonic() + WAIT_S, 1
        while server.waiting(name):
            assert time.monotonic() < deadline
            while (fetch := second.poll(0, 100)) is not None:
                assert not fetch.records.num_rows, "what comes again is left out"
            checkpoint_id += 1
            barrier(second, checkpoint_id)
            second.on_completed(checkpoint_id)
            threading.Event().wait(0.05)
    assert server.deliveries(name) >= 11


def test_a_checkpoint_interval_that_is_too_long_is_refused_at_the_start(server: PubSubServer) -> None:
    source = source_of(server.host, "any", lease="1 min")
    open_reader(source, checkpoint_interval_ms=29_999).close()
    with pytest.raises(Fatal, match=r"checkpoints, which are 30 s apart.*unacknowledged for 60 s: .*lease="):
        open_reader(source, checkpoint_interval_ms=30_000)


def test_checkpoints_that_are_too_rare_end_the_job(server: PubSubServer) -> None:
    name, clock = new_name(server), ManualClock()
    publish(server, name, [1])
    with closing(open_reader(source_of(server.host, name, lease="1 min"), clock=clock)) as reader:
        read(reader, lambda seen: len(seen) == 1)
        clock.advance(30_000)
        with pytest.raises(Fatal, match=r"for 30 s no checkpoint was completed.*or give a longer lease="):
            reader.poll(0, 10)


def test_what_is_no_row_ends_the_job_or_goes_to_the_dead_letters(server: PubSubServer) -> None:
    name = new_name(server)
    (message_id,) = publish(server, name, [1])
    value = Json(pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    with (
        closing(open_reader(source_of(server.host, name, value=value))) as reader,
        pytest.raises(BadRecordError, match=f"message '{message_id}' of projects/shop/subscriptions/{name}"),
    ):
        read(reader, lambda seen: False)
    tolerant = source_of(server.host, name, value=value, dead_letters=PrintSink())
    with closing(open_reader(tolerant)) as reader:
        deadline = time.monotonic() + WAIT_S
        while (fetch := reader.poll(0, 10)) is None or fetch.dead_letters is None:
            assert time.monotonic() < deadline
            threading.Event().wait(0.002)
        (letter,) = fetch.dead_letters.to_pylist()
    assert (letter["key"], letter["value"]) == (message_id.encode(), b'{"n": 1}')


def test_a_subscription_that_is_not_there_is_one_sentence(server: PubSubServer) -> None:
    with (
        closing(open_reader(source_of(server.host, "nothing"))) as reader,
        pytest.raises(Fatal, match="projects/shop/subscriptions/nothing is not there: create it"),
    ):
        read(reader, lambda seen: False)


def test_a_server_that_is_away_is_waited_for_and_then_given_up() -> None:
    with PubSubServer() as server:
        name = new_name(server)
        publish(server, name, [1])
        with closing(open_reader(source_of(server.host, name, timeout="300 ms"))) as reader:
            read(reader, lambda seen: len(seen) == 1)
            server.kill()
            with pytest.raises(Unavailable, match=r"gave up after .* s \(timeout\): projects/shop/"):
                read(reader, lambda seen: False)


def test_a_subscription_that_is_quiet_is_told_once_so_that_it_may_be_idle(server: PubSubServer) -> None:
    name = new_name(server)
    publish(server, name, [1])
    with closing(open_reader(source_of(server.host, name))) as reader:
        read(reader, lambda seen: len(seen) == 1)
        deadline = time.monotonic() + WAIT_S
        while (fetch := reader.poll(0, 10)) is None:
            assert time.monotonic() < deadline
            threading.Event().wait(0.002)
        assert fetch.at_end == {f"projects/shop/subscriptions/{name}"}
        threading.Event().wait(1.2)
        assert reader.poll(0, 10) is None
