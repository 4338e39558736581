"""NifiSource on a server of ours that speaks NiFi's protocol: the contract, transactions that are held and
confirmed, and what is refused."""

from __future__ import annotations

import json
import threading
import time
import uuid
from base64 import b85decode
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.nifi import NifiSource
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import BadRecordError, Fatal, Unavailable
from onceflow.sinks.print import PrintSink
from onceflow.testing.kit import QueueKit
from tests.integration.read_queues import WAIT_S, barrier, numbers, open_reader, read
from tests.nifi_server import NifiServer

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture(scope="module")
def server() -> Iterator[NifiServer]:
    with NifiServer(ttl_s=1) as server:
        yield server


def put(server: NifiServer, port: str, values: Sequence[int], **attributes: str) -> list[str]:
    return server.put(port, [json.dumps({"n": n}).encode() for n in values], **attributes)


def new_port(server: NifiServer) -> str:
    return server.create(f"p{uuid.uuid4().hex[:10]}")


def source_of(url: str, port: str, **options: Any) -> NifiSource:
    return NifiSource(**{"urls": [url], "port": port, "value": Json(SCHEMA), **options})


class TestPort(QueueKit):
    count: ClassVar[int] = 4

    @pytest.fixture(autouse=True)
    def _server(self, server: NifiServer) -> None:
        self.server = server
        self.settings["url"] = server.url

    def prepare(self) -> None:
        port = self.settings["port"] = new_port(self.server)
        put(self.server, port, range(self.count))

    def source(self) -> NifiSource:
        return source_of(str(self.settings["url"]), str(self.settings["port"]), until_quiet="1 s", batch=1)

    def waiting(self) -> int:
        """How many are not confirmed, once that has been so for a while: the reader does not wait for
        confirmations."""
        port, deadline = str(self.settings["port"]), time.monotonic() + WAIT_S
        found, since = -1, self.server.clock_s
        while self.server.clock_s - since < 1.5:
            assert time.monotonic() < deadline
            if (now := self.server.waiting(port)) != found:
                found, since = now, self.server.clock_s
            threading.Event().wait(0.02)
        return found


# --- Readers --------------------------------------------------------------------------------------------


def pass_time(server: NifiServer, seconds: float) -> None:
    """Wait until so much of the server's time is over."""
    until, deadline = server.clock_s + seconds, time.monotonic() + WAIT_S
    while server.clock_s < until:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def wait_for_none(server: NifiServer, port: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while server.waiting(port):
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_what_is_known_of_a_flow_file_comes_beside_it(
    server: NifiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = new_port(server)
    (its_id,) = put(server, port, [7], filename="a.json")
    columns = {"file": "filename", "of": "owner"}
    monkeypatch.setenv("NIFI_TOKEN", "s3cret")
    source = source_of(
        server.url,
        f"id-{port}",
        id_column="id",
        attribute_columns=columns,
        headers={"Authorization": "Bearer ${NIFI_TOKEN}"},
    )
    assert "NIFI_TOKEN" not in repr(source)
    with closing(open_reader(source)) as reader:
        row = read(reader, lambda seen: len(seen) == 1)
    assert row == [{"n": 7, "id": its_id, "file": "a.json", "of": None}]
    assert server.headers[-1]["authorization"] == "Bearer s3cret"


def test_a_transaction_lives_on_until_it_is_confirmed(server: NifiServer) -> None:
    port = new_port(server)
    put(server, port, [1, 2])
    before = server.deliveries
    with closing(open_reader(source_of(server.url, port))) as reader:
        read(reader, lambda seen: len(seen) == 2)
        pass_time(server, 3 * server.ttl_s)
        assert server.deliveries == before + 2
        barrier(reader, 1)
        reader.on_completed(1)
        wait_for_none(server, port)
    assert server.deliveries == before + 2


def test_a_transaction_is_confirmed_when_all_of_it_is_counted(server: NifiServer) -> None:
    port = new_port(server)
    put(server, port, [1, 2, 3])
    with closing(open_reader(source_of(server.url, port))) as reader:
        read(reader, lambda seen: len(seen) == 2, records_max=1)
        barrier(reader, 1)
        reader.on_completed(1)
        threading.Event().wait(0.3)
        assert server.waiting(port) == 3, "a part of it is not counted"
        read(reader, lambda seen: len(seen) == 1)
        barrier(reader, 2)
        reader.on_completed(2)
        wait_for_none(server, port)


def test_what_nifi_may_still_give_back_is_known_however_long_it_takes(server: NifiServer) -> None:
    """A part of a transaction is acknowledged, and so not confirmed, for longer than `remember`."""
    port, clock = new_port(server), ManualClock()
    put(server, port, [1, 2, 3])
    described = source_of(server.url, port, remember="1 min", lease="1 h")
    with closing(open_reader(described, clock=clock)) as reader:
        rows = read(reader, lambda seen: len(seen) == 1, records_max=1)
        barrier(reader, 1)
        reader.on_completed(1)
        clock.advance(120_000)
        begun, deadline = len(server.headers), time.monotonic() + WAIT_S
        while len(server.headers) < begun + 2:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
        rows += read(reader, lambda seen: len(seen) == 1, records_max=1)
        (split,) = barrier(reader, 2)
        assert len(b85decode(str(split.position["ids"]))) == 2 * 16
    with closing(open_reader(described, [split])) as reader:
        rows += read(reader, lambda seen: len(seen) == 1)
        threading.Event().wait(0.3)
        assert reader.poll(0, 10) is None
    assert numbers(rows) == [1, 2, 3]


def test_what_is_given_back_comes_again_and_is_known(server: NifiServer) -> None:
    port = new_port(server)
    put(server, port, range(5))
    with closing(open_reader(source_of(server.url, port))) as first:
        read(first, lambda seen: len(seen) == 5)
        position = barrier(first, 1)
    put(server, port, [5])
    with closing(open_reader(source_of(server.url, port), position)) as second:
        assert numbers(read(second, lambda seen: len(seen) == 1)) == [5]
        barrier(second, 2)
        second.on_completed(2)
        wait_for_none(server, port)


def test_a_server_that_has_nothing_to_say_for_a_while_is_waited_for(server: NifiServer) -> None:
    port = new_port(server)
    put(server, port, range(3))
    with closing(open_reader(source_of(server.url, port))) as reader:
        rows = read(reader, lambda seen: len(seen) == 3)
        server.status = 503
        barrier(reader, 1)
        reader.on_completed(1)
        pass_time(server, 1.5 * server.ttl_s)
        reader.poll(0, 10)
        server.status = None
        put(server, port, [3])
        rows += read(reader, lambda seen: len(seen) == 1)
        barrier(reader, 2)
        reader.on_completed(2)
        wait_for_none(server, port)
    assert numbers(rows) == [0, 1, 2, 3]


def test_no_more_is_asked_for_than_may_be_unconfirmed(server: NifiServer) -> None:
    port = new_port(server)
    put(server, port, range(1_500))
    with closing(open_reader(source_of(server.url, port, prefetch=1_000))) as reader:
        rows = read(reader, lambda seen: len(seen) == 1_000)
        threading.Event().wait(0.3)
        assert reader.poll(0, 10) is None
        barrier(reader, 1)
        reader.on_completed(1)
        rows += read(reader, lambda seen: len(seen) == 500)
    assert numbers(rows) == list(range(1_500))


def test_a_checkpoint_interval_that_is_too_long_is_refused_at_the_start(server: NifiServer) -> None:
    source = source_of(server.url, "any", lease="1 min")
    open_reader(source, checkpoint_interval_ms=29_999).close()
    with pytest.raises(Fatal, match=r"checkpoints, which are 30 s apart.*unacknowledged for 60 s: .*lease="):
        open_reader(source, checkpoint_interval_ms=30_000)


def test_checkpoints_that_are_too_rare_end_the_job(server: NifiServer) -> None:
    port, clock = new_port(server), ManualClock()
    put(server, port, [1])
    with closing(open_reader(source_of(server.url, port, lease="1 min"), clock=clock)) as reader:
        read(reader, lambda seen: len(seen) == 1)
        clock.advance(30_000)
        with pytest.raises(Fatal, match=r"for 30 s no checkpoint was completed.*or give a longer lease="):
            reader.poll(0, 10)


def test_what_is_no_row_ends_the_job_or_goes_to_the_dead_letters(server: NifiServer) -> None:
    port = new_port(server)
    (its_id,) = put(server, port, [1])
    value = Json(pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    with (
        closing(open_reader(source_of(server.url, port, value=value))) as reader,
        pytest.raises(BadRecordError, match=f"message '{its_id}' of http"),
    ):
        read(reader, lambda seen: False)
    tolerant = source_of(server.url, port, value=value, dead_letters=PrintSink())
    with closing(open_reader(tolerant)) as reader:
        deadline = time.monotonic() + WAIT_S
        while (fetch := reader.poll(0, 10)) is None or fetch.dead_letters is None:
            assert time.monotonic() < deadline
            threading.Event().wait(0.002)
        (letter,) = fetch.dead_letters.to_pylist()
    assert (letter["key"], letter["value"]) == (its_id.encode(), b'{"n": 1}')


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (None, Fatal, "output port 'none' of http.* is not there: .* are .*: name one"),
        (403, Fatal, r"NiFi does not let it in \(403\): give the right to receive data"),
        (503, Unavailable, r"gave up after .* NiFi answers GET with 503 not now"),
    ],
)
def test_what_nifi_refuses_is_one_sentence(
    status: int | None, error: type[Exception], said: str, server: NifiServer
) -> None:
    new_port(server)
    server.status = status
    try:
        source = source_of(server.url, "none", timeout="100 ms")
        with closing(open_reader(source)) as reader, pytest.raises(error, match=said):
            read(reader, lambda seen: False)
    finally:
        server.status = None


def test_a_node_that_is_away_is_given_up() -> None:
    with NifiServer() as server:
        port = new_port(server)
    source = source_of(server.url, port, timeout="100 ms")
    with closing(open_reader(source)) as reader, pytest.raises(Unavailable, match="gave up after"):
        read(reader, lambda seen: False)
