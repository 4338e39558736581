"""KinesisReader against a server that answers as a test says: requests that are refused, iterators that
expire, and what ends the job."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.kinesis import KinesisSource
from onceflow.connectors.kinesis.position import ShardPosition
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import ReaderContext
from onceflow.runtime.errors import DataLossError, Fatal, Unavailable
from tests.kinesis_server import CREDENTIALS
from tests.scripted_http import Asked, ScriptedHttp, Told

SCHEMA = pa.schema([("n", pa.int64())])
START = ShardPosition("shardId-000000000000", "trades", 0, (), "0", str(2**128 - 1))
WAIT_S = 120


@pytest.fixture(autouse=True)
def _credentials() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(CREDENTIALS)
    yield
    for name in CREDENTIALS:
        os.environ.pop(name)
        if name in before:
            os.environ[name] = before[name]


def refused(code: str, status: int = 400) -> Told:
    return told({"__type": code, "message": "no"}, status)


def told(answer: Mapping[str, Any], status: int = 200) -> Told:
    return Told(status, json.dumps(answer).encode(), {"Content-Type": "application/x-amz-json-1.1"})


def records(numbers: Sequence[int], then: str | None = "next") -> Told:
    """Records, and the next iterator; None: the shard has ended."""
    found = [
        {
            "SequenceNumber": str(n),
            "ApproximateArrivalTimestamp": time.time(),
            "Data": base64.b64encode(json.dumps({"n": n}).encode()).decode(),
            "PartitionKey": "k",
        }
        for n in numbers
    ]
    return told({"Records": found, "MillisBehindLatest": 0, **({"NextShardIterator": then} if then else {})})


class Script:
    """Answers of GetRecords, one after the other. Iterators are given as they are asked for."""

    def __init__(self, answers: Sequence[Told]) -> None:
        self._answers = list(answers)
        self.iterators: list[tuple[str, str | None]] = []
        """The types of iterators that were asked for, and behind what."""

    def __call__(self, asked: Asked) -> Told:
        body = json.loads(asked.body)
        if "ShardIteratorType" in body:
            self.iterators.append((body["ShardIteratorType"], body.get("StartingSequenceNumber")))
            return told({"ShardIterator": "first"})
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def read(script: Script, position: ShardPosition = START, said: list[str] | None = None) -> list[int]:
    """The rows until the shard has ended."""
    with ScriptedHttp(script).running() as server:
        source = KinesisSource(
            stream="trades",
            value=Json(SCHEMA),
            region="us-east-1",
            endpoint_url=server.url,
            fetch_interval="1 ms",
            timeout="3 s",
        )
        on_wait = (lambda reason: None) if said is None else said.append
        context = ReaderContext("job", "uid", 0, 1, SystemClock(), on_wait=on_wait)
        rows: list[int] = []
        with closing(source.open_reader(context)) as reader:
            reader.add_splits([position.state()])
            deadline = time.monotonic() + WAIT_S
            while True:
                assert time.monotonic() < deadline
                if (fetch := reader.poll(0, 100)) is None:
                    threading.Event().wait(0.002)
                    continue
                rows += [row["n"] for row in fetch.records.to_pylist()]
                if fetch.finished:
                    return rows


def test_a_shard_is_asked_again_when_kinesis_wants_fewer_requests_or_fails() -> None:
    throttled = refused("ProvisionedThroughputExceededException")
    script = Script([throttled, throttled, records([1]), refused("InternalFailure", 500), records([2], None)])
    assert read(script) == [1, 2]
    assert script.iterators == [("TRIM_HORIZON", None)] * 3 + [("AFTER_SEQUENCE_NUMBER", "1")]


def test_an_iterator_that_has_expired_is_made_anew_behind_what_was_fetched() -> None:
    script = Script([records([1, 2]), refused("ExpiredIteratorException"), records([3]), records([], None)])
    assert read(script, ShardPosition.of(START.state())) == [1, 2, 3]
    assert script.iterators == [("TRIM_HORIZON", None), ("AFTER_SEQUENCE_NUMBER", "2")]


def test_requests_that_are_refused_for_too_long_fail_the_attempt() -> None:
    said: list[str] = []
    with pytest.raises(Unavailable, match="Kinesis wants fewer requests"):
        read(Script([refused("ProvisionedThroughputExceededException")]), said=said)
    assert any("wants fewer requests" in line for line in said)


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("AccessDeniedException", Fatal, r"Kinesis refuses it \(AccessDeniedException: no\)"),
        ("ResourceNotFoundException", DataLossError, "has to go on at its beginning, and Kinesis says"),
    ],
)
def test_what_stays_refused_ends_the_job(code: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        read(Script([refused(code)]))
