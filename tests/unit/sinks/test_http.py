"""HttpSink on a little server of our own: keys, answers of every kind, rows that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.connectors.webhooks.target import WebhookTarget
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.errors import Fatal, GraphError, JobFailedError, OptionError, Unavailable
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import SINK_CHECKS, SinkUnderTest
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.sinks.http import HttpSink
from tests.scripted_http import Asked, ScriptedHttp, Told
from tests.upsert_cases import checkpoint, keeps_the_contract, number, open_writer

KEY = "Idempotency-Key"


def taken(server: ScriptedHttp, path: str = "/rows") -> dict[str, Any]:
    """What a receiver that remembers keys has: the first body of each."""
    found: dict[str, Any] = {}
    for asked in server.asked:
        if asked.path == path:
            found.setdefault(asked.headers[KEY], json.loads(asked.body))
    return found


def rows(*numbers: int) -> Records:
    return Records(pa.record_batch({"n": list(numbers)}))


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_the_contract_of_sinks(check: Callable[[SinkUnderTest], None]) -> None:
    with ScriptedHttp(lambda _: Told()).running() as server:
        sink = HttpSink(f"{server.url}/rows", delivery_timeout="1 s")
        keeps_the_contract(check, sink, "beef", lambda: sorted(row["n"] for row in taken(server).values()))


def test_a_request_has_a_key_of_its_rows_and_comes_again_under_it() -> None:
    """The first answer says that it will pass, and the second connection is cut when the rows are there."""
    answers = [Told(), Told(503), Told(is_cut=True), Told(429), Told()]
    with ScriptedHttp(lambda _: answers.pop(0)).running() as server:
        sink = HttpSink(f"{server.url}/rows", batch_rows=2)
        writer = open_writer(sink, "be/ef", MemoryStore())
        writer.recover([])
        checkpoint(writer, 7, rows(1, 2, 3))
        writer.close()
    keys = ["be%2Fef/out/7/0/0-1"] + ["be%2Fef/out/7/0/2-2"] * 4
    assert [asked.headers[KEY] for asked in server.asked] == keys
    assert list(taken(server).values()) == [[{"n": 1}, {"n": 2}], [{"n": 3}]]
    assert {asked.headers["Content-Type"] for asked in server.asked} == {"application/json"}


def test_a_later_attempt_sends_what_the_checkpoint_promised_under_the_same_keys() -> None:
    with ScriptedHttp(lambda _: Told()).running() as server:
        sink, store = HttpSink(f"{server.url}/rows"), MemoryStore()
        first = open_writer(sink, "beef", store)
        first.recover([])
        checkpoint(first, 1, number(1))
        first.write(number(2))
        promised = first.pre_commit(2).stage()
        first.commit(2)
        first.write(number(3))
        first.pre_commit(3).stage()  # never durable
        newer = open_writer(sink, "beef", store, attempt=2, restored=2)
        newer.recover([promised])
        checkpoint(newer, 3, number(4))
        first.commit(3)  # a zombie's: it was told so before it stood still
        sent = [(asked.headers[KEY], json.loads(asked.body)["n"]) for asked in server.asked]
    assert sent[:4] == [(f"beef/out/{n}/0/0-0", row) for n, row in [(1, 1), (2, 2), (2, 2), (3, 4)]]


def refusing(asked: Asked) -> Told:
    """Takes no even numbers."""
    if asked.path != "/rows":
        return Told()
    body = json.loads(asked.body)
    numbers = [row["n"] for row in (body if isinstance(body, list) else [body])]
    return Told(422, b"odd only") if any(n % 2 == 0 for n in numbers) else Told()


def test_a_refused_array_is_sent_row_by_row_and_bad_rows_go_elsewhere() -> None:
    with ScriptedHttp(refusing).running() as server:
        sink = HttpSink(f"{server.url}/rows", batch_rows=3, bad_rows_to=f"{server.url}/bad")
        writer = open_writer(sink, "beef", MemoryStore())
        writer.recover([])
        checkpoint(writer, 1, rows(1, 2, 3, 5, 7))
        writer.close()
    accepted = [asked for asked in server.asked if refusing(asked).status == 200 and asked.path == "/rows"]
    assert [json.loads(asked.body) for asked in accepted] == [[{"n": 1}], [{"n": 3}], [{"n": 5}, {"n": 7}]]
    assert [asked.headers[KEY][-3:] for asked in accepted] == ["0-0", "2-2", "3-4"]
    assert list(taken(server, "/bad").items()) == [
        ("beef/out/1/0/1-1/refused", {"reason": "the receiver answers 422 (odd only)", "row": '{"n": 2}'})
    ]


def ways_of_a_refused_array() -> list[str]:
    """The path and the rows of each request, half of the first ten met by an error that passes."""

    def answer(asked: Asked) -> Told:
        return refusing(asked) if len(server.asked) % 2 or len(server.asked) > 10 else Told(500)

    with ScriptedHttp(answer).running() as server:
        sink = HttpSink(f"{server.url}/rows", batch_rows=3, bad_rows_to=f"{server.url}/bad")
        writer = open_writer(sink, "beef", MemoryStore())
        writer.recover([])
        checkpoint(writer, 7, rows(1, 2, 3))
        writer.close()
    return [f"{asked.path} {asked.headers[KEY].split('/')[4]}" for asked in server.asked]


ONWARD = ["/rows 0-2", *["/rows 0-0"] * 2, *["/rows 1-1"] * 2, *["/bad 1-1"] * 2, *["/rows 2-2"] * 2]


def test_an_error_that_passes_in_a_refused_array_sends_that_request_again_and_no_other() -> None:
    assert ways_of_a_refused_array() == ONWARD


def test_a_refused_row_is_set_aside_under_a_key_of_its_own() -> None:
    with ScriptedHttp(refusing).running() as server:
        sink = HttpSink(f"{server.url}/rows", bad_rows_to=f"{server.url}/bad")
        writer = open_writer(sink, "beef", MemoryStore())
        writer.recover([])
        checkpoint(writer, 7, rows(2))
        writer.close()
    sent = [(asked.path, asked.headers[KEY]) for asked in server.asked]
    assert sent == [("/rows", "beef/out/7/0/0-0"), ("/bad", "beef/out/7/0/0-0/refused")]


def test_a_sink_that_forgets_which_rows_of_an_array_were_accepted_is_noticed() -> None:
    def each(self: WebhookTarget, checkpoint_id: int, first: int, batch: pa.RecordBatch) -> None:
        for n in range(len(batch)):
            self._deliver(checkpoint_id, first + n, batch.slice(n, 1))

    with mutated(Mutant("accepted rows are forgotten", [(WebhookTarget, "_deliver_each", each)])):
        assert ways_of_a_refused_array() != ONWARD


def test_without_a_place_a_bad_row_ends_the_job_and_is_named() -> None:
    with ScriptedHttp(refusing).running() as server:
        job = Job("bad")
        job.from_records([{"n": 2}]).sink_to(HttpSink(f"{server.url}/rows"), uid="out")
        with pytest.raises(
            JobFailedError, match=r"sink 'out': a row is refused: .*422 \(odd only\). The row: "
        ):
            job.run(master="threads[1]")


def test_a_value_that_json_does_not_know_is_a_bad_row() -> None:
    schema = pa.schema([("n", pa.float64())])
    with ScriptedHttp(lambda _: Told()).running() as server:
        sink = HttpSink(f"{server.url}/rows", batch_rows=2, bad_rows_to=f"{server.url}/bad")
        writer = open_writer(sink, "beef", MemoryStore(), schema)
        writer.recover([])
        checkpoint(writer, 1, Records(pa.record_batch({"n": [0.5, float("nan")]}, schema=schema)))
        writer.close()
    assert list(taken(server).values()) == [[{"n": 0.5}]]
    (bad,) = taken(server, "/bad").values()
    assert "column 'n' holds nan" in bad["reason"]


def test_an_address_that_is_wrong_ends_the_job_and_one_that_is_away_is_waited_for() -> None:
    with ScriptedHttp(lambda _: Told(404)).running() as server:
        writer = open_writer(HttpSink(f"{server.url}/rows"), "beef", MemoryStore())
        writer.recover([])
        with pytest.raises(Fatal, match=r"sink 'out': the receiver answers 404 .*: correct the URL"):
            checkpoint(writer, 1, number(1))
    gone = open_writer(HttpSink(f"{server.url}/rows", delivery_timeout=0), "beef", MemoryStore())
    gone.recover([])
    with pytest.raises(Unavailable, match=r"gave up after 0 s .*no connection: .*refused"):
        checkpoint(gone, 1, number(1))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"url": "localhost"}, "url must begin with http:// or https://"),
        ({"url": "http:///rows"}, "and name a host"),
        ({"bad_rows_to": "rows"}, "bad_rows_to must begin with"),
        ({"batch_rows": 0}, "batch_rows=0 must be a whole number above 0"),
        ({"batch_rows": True}, "batch_rows=True must be"),
        ({"headers": {"idempotency-key": "x"}}, "the header Idempotency-Key is the sink's"),
        ({"answer_timeout": 0}, "answer_timeout=0 waits for no answer"),
        ({"delivery_timeout": "soon"}, "delivery_timeout='soon' is not a duration"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        HttpSink(**{"url": "http://localhost/rows", **options})


def test_a_column_without_a_json_form_is_refused_when_the_job_is_built() -> None:
    with pytest.raises(GraphError, match="column 'd'"):
        HttpSink("http://localhost/rows").check(pa.schema([("d", pa.month_day_nano_interval())]), "out")
