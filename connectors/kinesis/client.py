"""StreamClient: what is asked of Kinesis for one stream, and what its errors mean."""

from __future__ import annotations

import datetime as dt
import email.utils
import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from onceflow.connectors.kinesis.shards import Shard
from onceflow.runtime.errors import Fatal, Retryable

RECORDS_MAX = 10_000
"""The most records of one answer."""
_CONNECT_S, _READ_S = 5, 20
SECOND_MS = 1_000
"""The server's clock is known in whole seconds."""
_HOUR_MS = 3_600_000
_THROTTLED = frozenset({"ProvisionedThroughputExceededException", "LimitExceededException"})
_THROTTLED_KEYS = frozenset({"KMSThrottlingException", "ThrottlingException"})
_SERVER_ERROR = 500


_making = threading.Lock()


@functools.cache
def _session() -> Any:
    """One for each process: the description of the service is read once. Its credentials renew themselves.
    Not made for several threads, which the clients that it makes are."""
    return boto3.session.Session()


class ExpiredIterator(Retryable):
    """An iterator is older than five minutes: ask for a new one."""


class NotThere(Fatal):
    """The stream, or the shard, is not there."""


class NotASequenceNumber(Fatal):
    """A sequence number is none of this shard."""


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """Which stream, and where it is."""

    stream: str
    """Its name, or its ARN."""
    region: str | None
    endpoint_url: str | None

    @property
    def named(self) -> Mapping[str, str]:
        """How requests name it."""
        return {"StreamARN" if self.stream.startswith("arn:") else "StreamName": self.stream}


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known of a stream."""

    created_ms: int
    retention_ms: int
    now_ms: int
    """The server's clock, in whole seconds, rounded down."""

    @property
    def horizon_ms(self) -> int:
        """What arrived before may be trimmed."""
        return self.now_ms - self.retention_ms


@dataclass(frozen=True, slots=True)
class Answer:
    """What one reading of a shard brought."""

    records: Sequence[Mapping[str, Any]]
    next_iterator: str | None
    """None: the shard is closed, and this was its end."""
    behind_ms: int
    now_ms: int


class StreamClient:
    """One stream. May be used by several threads."""

    def __init__(self, place: StreamPlace, connections: int) -> None:
        """Asks nobody. Raises Fatal where no region is known."""
        config = Config(
            connect_timeout=_CONNECT_S,
            read_timeout=_READ_S,
            retries={"total_max_attempts": 1},  # the readers try again, and say so
            max_pool_connections=connections,
        )
        self._place = place
        try:
            with _making:
                self._client: Any = _session().client(
                    "kinesis", region_name=place.region, endpoint_url=place.endpoint_url, config=config
                )
        except (BotoCoreError, ValueError) as error:
            raise self._meaning(error) from error

    def summary(self) -> Summary:
        answer = self._ask("describe_stream_summary", **self._place.named)
        found = answer["StreamDescriptionSummary"]
        return Summary(
            _ms(found["StreamCreationTimestamp"]),
            int(found["RetentionPeriodHours"]) * _HOUR_MS,
            _server_ms(answer),
        )

    def shards(self) -> list[Shard]:
        """All that are listed: open ones, and closed ones that may still have records."""
        found: list[Shard] = []
        asked: Mapping[str, str] = self._place.named
        while True:
            answer = self._ask("list_shards", **asked)
            found += map(_shard, answer["Shards"])
            if (token := answer.get("NextToken")) is None:
                return found
            asked = {"NextToken": token}

    def iterator_after(self, shard_id: str, sequence: str) -> str:
        """Raises NotASequenceNumber for one that this shard did not give."""
        return self._iterator(shard_id, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=sequence)

    def iterator_at(self, shard_id: str, sequence: str) -> str:
        """See `iterator_after`."""
        return self._iterator(shard_id, "AT_SEQUENCE_NUMBER", StartingSequenceNumber=sequence)

    def iterator_from(self, shard_id: str, from_ms: int | None) -> str:
        """Where reading begins: at what arrived at this time; None: at the oldest that is there."""
        if from_ms is None:
            return self._iterator(shard_id, "TRIM_HORIZON")
        at = dt.datetime.fromtimestamp(from_ms / 1000, dt.UTC)
        return self._iterator(shard_id, "AT_TIMESTAMP", Timestamp=at)

    def records(self, iterator: str, count: int = RECORDS_MAX) -> Answer:
        """Raises ExpiredIterator, and Retryable where Kinesis wants fewer requests."""
        answer = self._ask("get_records", ShardIterator=iterator, Limit=count)
        return Answer(
            answer["Records"],
            answer.get("NextShardIterator"),
            int(answer.get("MillisBehindLatest") or 0),
            _server_ms(answer),
        )

    def close(self) -> None:
        self._client.close()

    def _iterator(self, shard_id: str, kind: str, **where: Any) -> str:
        asked = {"ShardId": shard_id, "ShardIteratorType": kind, **where, **self._place.named}
        answer = self._ask("get_shard_iterator", **asked)
        return str(answer["ShardIterator"])

    def _ask(self, what: str, **asked: Any) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = getattr(self._client, what)(**asked)
        except (ClientError, BotoCoreError) as error:
            raise self._meaning(error) from error
        return answer

    def _meaning(self, error: Exception) -> Fatal | Retryable:
        where = f"stream {self._place.stream!r}"
        if isinstance(error, ClientError):
            return _meaning_of_answer(error, where)
        if isinstance(error, NoRegionError):
            return Fatal(f"{where}: no region is known: give region=, or set AWS_REGION where the slots run")
        if isinstance(error, NoCredentialsError):
            return Fatal(
                f"{where}: there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY where "
                "the driver and the slots run, or give the machines a role"
            )
        if isinstance(error, ValueError):
            return Fatal(f"{where}: {error}: look at endpoint_url= and region=")
        return Retryable(f"{where}: no answer from Kinesis: {error}")


def _meaning_of_answer(error: ClientError, where: str) -> Fatal | Retryable:
    code, said = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == "ExpiredIteratorException":
        return ExpiredIterator(f"{where}: {said}")
    if code in _THROTTLED or code in _THROTTLED_KEYS:
        return Retryable(f"{where}: Kinesis wants fewer requests ({code}: {said})")
    if code == "ResourceNotFoundException":
        return NotThere(f"{where} is not there, or this shard of it: {said}. Look at stream= and region=")
    if code == "InvalidArgumentException" and "equence" in said:
        return NotASequenceNumber(f"{where}: {said}")
    if status >= _SERVER_ERROR or code in ("RequestTimeout", "RequestExpired"):
        return Retryable(f"{where}: Kinesis answers {code or status}: {said}")
    return Fatal(
        f"{where}: Kinesis refuses it ({code}: {said}): look at the rights of the role and at region="
    )


def _shard(listed: Mapping[str, Any]) -> Shard:
    hashes, numbers = listed["HashKeyRange"], listed["SequenceNumberRange"]
    parents = (listed.get("ParentShardId"), listed.get("AdjacentParentShardId"))
    return Shard(
        listed["ShardId"],
        tuple(parent for parent in parents if parent),
        hashes["StartingHashKey"],
        hashes["EndingHashKey"],
        numbers.get("EndingSequenceNumber") is None,
    )


def _server_ms(answer: Mapping[str, Any]) -> int:
    """The server's clock, by the header that each answer has."""
    return _ms(email.utils.parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]))


def _ms(time: dt.datetime) -> int:
    return int(time.timestamp() * 1000)
