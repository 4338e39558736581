"""HttpStreamReader on a real server: each event once, over cuts, restarts and a server that is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from onceflow import WatermarkStrategy  # noqa: F401 - the package's own logger is silent
from onceflow.connectors.formats import Debezium, Json
from onceflow.connectors.http_stream import HttpStreamSource
from onceflow.connectors.http_stream.reader import HttpStreamReader
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.errors import BadRecordError, DataLossError, Fatal, Unavailable
from onceflow.runtime.records import RowKind
from onceflow.runtime.testing.conformance import WAKING_CHECKS, WakingSourceUnderTest
from onceflow.sinks.print import PrintSink
from tests.stream_server import StreamServer

DEADLINE_S = 120


class Number(NamedTuple):
    n: int


@pytest.fixture
def server() -> Iterator[StreamServer]:
    with StreamServer().running() as server:
        yield server


def source(server: StreamServer, **options: Any) -> HttpStreamSource:
    return HttpStreamSource(**{"urls": f"{server.url}/events", "value": Json(Number), **options})


def lines(server: StreamServer, **options: Any) -> HttpStreamSource:
    given = {"framing": "json-lines", "id_field": "id", "resume_parameter": "since", **options}
    return source(server, urls=f"{server.url}/lines?x=1", **given)


class Reading:
    """A reader that is polled until it has what is waited for."""

    def __init__(
        self, source: HttpStreamSource, splits: Sequence[SplitState] | None = None, **context: Any
    ) -> None:
        self.waits: list[str] = []
        made = ReaderContext("job", "stream", 0, 1, SystemClock(), on_wait=self.waits.append, **context)
        self.reader: HttpStreamReader = source.open_reader(made)
        begin = source.open_enumerator("job", SystemClock()).initial_splits()
        self.reader.add_splits(begin if splits is None else splits)

    def take(self, count: int, records_max: int = 7) -> list[Fetch]:
        """Fetches with so many rows or dead letters, and not one more for now."""
        found: list[Fetch] = []
        deadline = time.monotonic() + DEADLINE_S
        while sum(rows_of(fetch) for fetch in found) < count:
            assert time.monotonic() < deadline, found
            fetch = self.reader.poll(0, records_max)
            found += [] if fetch is None else [fetch]
            if fetch is None:
                time.sleep(0.002)
        assert sum(rows_of(fetch) for fetch in found) == count
        return found

    def numbers(self, count: int) -> list[int]:
        taken = [fetch.records["n"].to_pylist() for fetch in self.take(count)]
        return [n for part in taken for n in part]


def rows_of(fetch: Fetch) -> int:
    return fetch.records.num_rows + (fetch.dead_letters.num_rows if fetch.dead_letters is not None else 0)


def numbers(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"n": n} for n in range(first, first + count)]


@pytest.mark.parametrize("make", [source, lines])
@pytest.mark.parametrize("again", [False, True])
def test_each_event_once_over_many_cuts(server: StreamServer, make: Any, again: bool) -> None:
    server.add(*numbers(50))
    server.cut_after, server.sends_asked_again = 7, again
    reading = Reading(make(server))
    assert reading.numbers(50) == list(range(50))
    assert len(server.requests) > 5
    reading.reader.close()


@pytest.mark.parametrize("make", [source, lines])
def test_a_reader_goes_on_exactly_behind_every_snapshot(server: StreamServer, make: Any) -> None:
    server.add(*numbers(20))
    before = Reading(make(server), with_origin=True)
    for count in range(0, 20, 4):
        after = Reading(make(server), before.reader.snapshot(), with_origin=True)
        assert after.numbers(20 - count) == list(range(count, 20))
        assert after.reader.snapshot()[0].position == {"last_event_id": "20", "count": 20}
        after.reader.close()
        fetches = before.take(4, records_max=4)
        assert [n for fetch in fetches for n in fetch.offset] == list(range(count, count + 4))
    before.reader.close()


def test_events_of_other_names_are_passed_by_and_columns_are_added(server: StreamServer) -> None:
    server.add({"n": 1, "name": "trade"}, {"n": 2, "name": "noise"}, {"n": 3, "name": "trade"})
    described = source(
        server, events=["trade"], id_column="id", event_column="kind", url_column="from", value=Json(Number)
    )
    rows = [row for fetch in Reading(described).take(2) for row in fetch.records.to_pylist()]
    url = f"{server.url}/events"
    assert rows == [
        {"n": 1, "id": "1", "kind": "trade", "from": url},
        {"n": 3, "id": "3", "kind": "trade", "from": url},
    ]
    narrow = described.project(frozenset({"kind"}))
    assert [r for f in Reading(narrow).take(2) for r in f.records.to_pylist()] == [{"kind": "trade"}] * 2


def test_an_event_without_an_id_is_refused_or_may_be_lost(server: StreamServer) -> None:
    server.with_ids = False
    server.add(*numbers(3))
    with pytest.raises(Fatal, match=r'an event has no id.*\{"n": 0\}.*without_ids="at-most-once"'):
        Reading(source(server)).numbers(3)
    reading = Reading(source(server, without_ids="at-most-once"))
    assert reading.numbers(3) == [0, 1, 2]
    assert reading.reader.snapshot()[0].position == {"last_event_id": None, "count": 3}


def test_a_bad_event_is_told_or_goes_to_the_dead_letters(server: StreamServer) -> None:
    server.add({"n": 1}, {"n": "two"}, {"n": 3})
    with pytest.raises(BadRecordError, match=r"event '2' of http.*and dead_letters="):
        Reading(source(server)).numbers(3)
    fetches = Reading(source(server, dead_letters=PrintSink())).take(3)
    letters = [row for f in fetches if f.dead_letters is not None for row in f.dead_letters.to_pylist()]
    assert [(letter["key"], letter["offset"]) for letter in letters] == [(b"2", 1)]


def test_a_server_that_is_away_is_waited_for_and_said(server: StreamServer) -> None:
    server.statuses = [503, 429] * 4
    server.add(*numbers(2))
    reading = Reading(source(server))
    assert reading.numbers(2) == [0, 1]
    assert any("is away since" in said and "answers" in said for said in reading.waits)
    assert reading.waits[-1] == ""


def test_a_server_that_stays_away_fails_the_attempt(server: StreamServer) -> None:
    server.stop()
    with pytest.raises(
        Unavailable, match=r"is away since 0 s \(.*Connection refused\): the attempt is given up"
    ):
        Reading(source(server, timeout="200 ms")).numbers(1)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_no_other_try_can_help_is_fatal_at_once(server: StreamServer, status: int) -> None:
    server.statuses = [status]
    with pytest.raises(Fatal, match=f"answers {status}: 'not now': check url= and headers="):
        Reading(source(server)).numbers(1)


def test_events_that_the_server_has_no_more_are_lost_records(server: StreamServer) -> None:
    server.statuses = [410]
    at = SplitState(f"{server.url}/events", {"last_event_id": "7", "count": 7})
    with pytest.raises(DataLossError, match="behind event '7' is gone"):
        Reading(source(server), [at]).numbers(1)


def test_a_server_that_says_that_nothing_comes_any_more_finishes_the_split(server: StreamServer) -> None:
    server.statuses = [204]
    reading = Reading(source(server))
    deadline = time.monotonic() + DEADLINE_S
    while (fetch := reading.reader.poll(0, 1)) is None:
        assert time.monotonic() < deadline
        threading.Event().wait(0.002)
    assert fetch.finished == {f"{server.url}/events"}
    assert reading.reader.poll(0, 1) is None


def test_changes_of_a_table_keep_their_kinds(server: StreamServer) -> None:
    server.add({"op": "c", "after": {"n": 1}}, {"op": "d", "before": {"n": 1}})
    described = source(server, value=Debezium(Json(Number)))
    assert described.has_kinds
    kinds = [kind for fetch in Reading(described).take(2) for kind in fetch.kind]
    assert kinds == [RowKind.INSERT, RowKind.DELETE]


def test_an_answer_of_another_type_is_refused(server: StreamServer) -> None:
    with pytest.raises(Fatal, match=r'answers with .application/json.*say framing="json-lines"'):
        Reading(source(server, urls=f"{server.url}/lines")).numbers(1)


def test_headers_may_have_secrets_of_the_environment(
    server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add(*numbers(1))
    described = source(server, headers={"Authorization": "Bearer ${STREAM_TOKEN}"}, start_after="0")
    assert "STREAM_TOKEN" not in repr(described)
    with pytest.raises(Fatal, match="environment variable 'STREAM_TOKEN', which is not set"):
        Reading(described).numbers(1)
    monkeypatch.setenv("STREAM_TOKEN", "s3cret")
    assert Reading(described).numbers(1) == [0]
    assert server.requests[-1][1]["Authorization"] == "Bearer s3cret"
    assert server.requests[-1][1]["Last-Event-ID"] == "0"


@pytest.mark.parametrize("check", WAKING_CHECKS, ids=lambda check: check.__name__)
def test_what_comes_wakes_the_slot(server: StreamServer, check: Any) -> None:
    check(WakingSourceUnderTest(source(server), lambda: server.add({"n": 1})))
