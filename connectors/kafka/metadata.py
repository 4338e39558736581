"""ClusterMetadata: what a source asks a Kafka cluster before and beside reading.

Every answer is fresh and within a deadline. A question that meets a dead broker is asked again, of
whoever is there by then. A cluster that does not answer all that time is Unavailable and says why, one that
refuses us a Fatal, at once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from onceflow.connectors.kafka.committed_offsets import ask_for_group, group_reader
from onceflow.connectors.kafka.failures import connection_failure, denied
from onceflow.connectors.kafka.options import Isolation, KafkaOptions
from onceflow.connectors.kafka.who_is_there import AWAY, learn_who_is_there
from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import Fatal, OnceflowError, OptionError, Retryable, Unavailable

PartitionKey = tuple[str, int]
"""A topic and the number of a partition."""

_LOG = logging.getLogger(__name__)
_CONNECTING = re.compile(r"^.* failed: | \(after \d+ms in state .*\)$")
"""What librdkafka says around the reason for which it could not connect: too much for one line."""
_TRY_MS = 5_000
"""How long one try of a question lasts: it may wait for a dead broker. The next asks anew who is there."""
_AUTHENTICATION = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_SETTLING = (  # of a topic that has just been made, or whose leader is about to change
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,  # a new leader does not know yet what the others have
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now. `topic_id` is new whenever a topic of this name is made anew."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]

    @property
    def keys(self) -> list[PartitionKey]:
        return [(self.name, partition) for partition in self.partitions]


class LogEnd(NamedTuple):
    """Where a partition ends."""

    offset: int
    leader_epoch: int | None
    """The leader's, at that time: what lies before the offset is of this epoch or an older one. None: it is
    not known."""


class ClusterMetadata:
    """Used by one thread. `timeout_ms` bounds each question, over all its tries."""

    def __init__(
        self, options: KafkaOptions, clock: Clock, timeout_ms: int, timeout_name: str | None = None
    ) -> None:
        """`timeout_name`: the option that the user sets timeout_ms by, for the sentence when it is over."""
        self._options = options
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._timeout_name = timeout_name
        self._first_answer_ms: int | None = None
        self._last_error = "no answer"
        self._refusal: str | None = None
        self._is_asking = False
        self._trouble: str | None = None
        """What went wrong while the question was asked that is under way; None: nothing, or none is."""
        self._may_be_outdated = False
        """A broker that was asked did not answer, be it to an earlier question that was given up."""
        ours = {"error_cb": self._on_error, "logger": _LOG}
        try:
            self._admin: AdminClient | None = AdminClient(options.admin(ours))
        except KafkaException as error:
            said = options.redact(error.args[0].str())
            raise OptionError(f"librdkafka refuses its settings: {said}") from error

    def expect_first_answer(self, within_ms: int | None) -> None:
        """Nobody has answered at this address yet, in this run or an earlier one: until somebody has, a
        question is given up after within_ms. None: it is asked as any other."""
        self._first_answer_ms = within_ms

    def topic_names(self) -> list[str]:
        """All topics except Kafka's own (`__consumer_offsets`), sorted."""
        names = self._asked("the list of topics", lambda s: self._client.list_topics(timeout=s).topics)
        return sorted(name for name in names if not name.startswith("__"))

    def describe(self, names: Sequence[str]) -> dict[str, Topic]:
        """These topics; one that does not exist is not in the answer."""
        return {} if not names else self._asked(_listed(names), lambda s: self._described(names, s))

    def offsets(
        self, wanted: Iterable[PartitionKey], at: Literal["earliest", "latest"] | int, isolation: Isolation
    ) -> dict[PartitionKey, int]:
        """The offset at the beginning, at the end (read_committed: the last stable offset), or of the
        first record at or after a time in ms (-1: there is none) for each partition."""
        return {key: found.offset for key, found in self._list(wanted, at, isolation).items()}

    def ends(self, wanted: Iterable[PartitionKey], isolation: Isolation) -> dict[PartitionKey, LogEnd]:
        """The end of each partition: as offsets(wanted, "latest", isolation)."""
        return self._list(wanted, "latest", isolation)

    def _list(
        self, wanted: Iterable[PartitionKey], at: Literal["earliest", "latest"] | int, isolation: Isolation
    ) -> dict[PartitionKey, LogEnd]:
        spec = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}.get(str(at))
        query = spec() if spec else OffsetSpec.for_timestamp(int(at))
        level = (
            IsolationLevel.READ_COMMITTED
            if isolation == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )
        found: dict[PartitionKey, LogEnd] = {}
        missing = {(topic, partition): TopicPartition(topic, partition) for topic, partition in wanted}

        def ask(timeout_s: float) -> dict[PartitionKey, LogEnd]:
            futures = self._client.list_offsets(
                dict.fromkeys(missing.values(), query), isolation_level=level, request_timeout=timeout_s
            )
            failed: KafkaException | None = None
            for tp, future in futures.items():
                try:
                    answer = self._result(future)
                except KafkaException as error:
                    failed = error  # those that other leaders answered are kept
                    continue
                if answer.offset == OFFSET_INVALID:  # no error: its leader died before it was asked
                    failed = KafkaException(KafkaError(KafkaError._TRANSPORT))
                    continue
                epoch = answer.leader_epoch
                is_known = epoch is not None and epoch >= 0
                found[tp.topic, tp.partition] = LogEnd(answer.offset, epoch if is_known else None)
                del missing[tp.topic, tp.partition]
            if failed is not None:
                raise failed
            return found

        names = sorted({topic for topic, _ in missing})
        return self._asked(f"offsets of {_listed(names)}", ask, _SETTLING) if missing else found

    def committed(self, group_id: str, wanted: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """What a consumer group has committed; partitions without a commit are not in the answer."""
        partitions = [TopicPartition(topic, partition) for topic, partition in wanted]

        def ask(timeout_s: float) -> dict[PartitionKey, int]:
            ask_for_group(self._client, group_id, timeout_s)  # says so if it is not allowed
            found = group.committed(partitions, timeout=timeout_s)
            for answer in found:
                if answer.error is not None:
                    raise KafkaException(answer.error)
            return {(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}

        ours = {"error_cb": self._on_error, "logger": _LOG}
        with closing(group_reader(self._options, group_id, "read_committed", ours)) as group:
            return self._asked(f"offsets of group {group_id!r}", ask)

    def waiting_for(self) -> str | None:
        """Why the question that is under way has no answer yet. Called on another thread."""
        if (trouble := self._trouble) is None:
            return None
        reason = self._options.redact(_CONNECTING.sub("", trouble))
        return f"Kafka at {self._options.bootstrap_servers} does not answer: {reason}"

    def close(self) -> None:
        self._admin = None

    @property
    def _client(self) -> AdminClient:
        if self._admin is None:  # by another thread, while a question was asked again
            raise Retryable(f"closed while Kafka at {self._options.bootstrap_servers} was asked")
        return self._admin

    def _described(self, names: Sequence[str], timeout_s: float) -> dict[str, Topic]:
        futures = self._client.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        topics = {}
        for name, future in futures.items():
            try:
                found = self._result(future)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            else:
                partitions = tuple(sorted(p.id for p in found.partitions))
                topics[name] = Topic(name, str(found.topic_id), partitions)
        return topics

    def _asked(self, what: str, ask: Callable[[float], Result], settling: tuple[int, ...] = ()) -> Result:
        """What `ask(timeout in s)` answers, asked again while brokers are away or `settling` passes."""
        deadline = self._clock.monotonic_ms() + self._patience_ms
        try:
            answer = self._ask_until(deadline, what, ask, settling)
            self._first_answer_ms = None
            return answer
        finally:
            self._is_asking, self._trouble = False, None

    def _ask_until(
        self, deadline: float, what: str, ask: Callable[[float], Result], settling: tuple[int, ...]
    ) -> Result:
        self._is_asking = True
        while True:
            try_s = min(_TRY_MS, self._patience_ms) / 1000
            if self._may_be_outdated:
                self._may_be_outdated = not learn_who_is_there(self._client, try_s)
            try:
                return ask(try_s)
            except KafkaException as error:
                self._client.poll(0)  # serves _on_error
                cause: KafkaError = error.args[0]
                explained = self._explained(cause, what)
                is_passing = cause.code() in AWAY or cause.code() in settling
                self._may_be_outdated = self._may_be_outdated or is_passing
                is_over = self._clock.monotonic_ms() > deadline
                self._trouble = self._last_error if cause.code() in AWAY else cause.str()
                if isinstance(explained, Fatal) or not is_passing or is_over:
                    raise explained from error
            self._client.poll(0.1)

    def _result(self, future: Future[Any]) -> Any:
        """Raises KafkaException; librdkafka keeps to the time-out of the request."""
        while not future.done():
            wait([future], timeout=0.05)
            self._client.poll(0)  # serves _on_error
            if self._refusal is not None:
                raise KafkaException(KafkaError(KafkaError._AUTHENTICATION))
        return future.result()

    def _explained(self, cause: KafkaError, what: str) -> OnceflowError:
        if cause.code() in _DENIED:
            return denied(f"get {what}", what.removeprefix("offsets of "), "DESCRIBE", cause.name())
        if self._refusal is not None or cause.code() in _AUTHENTICATION:
            return Fatal(self._sentence(what, self._refusal or cause.str()))
        if cause.code() in AWAY:
            return Unavailable(f"{self._sentence(what, self._last_error)}. {self._waited}")
        return Retryable(self._sentence(what, cause.str()))

    @property
    def _patience_ms(self) -> int:
        return min(self._first_answer_ms or self._timeout_ms, self._timeout_ms)

    @property
    def _waited(self) -> str:
        """How long it was waited, and which option says so."""
        seconds, name = f"{self._patience_ms / 1000:g} s", self._timeout_name
        if self._first_answer_ms is not None:
            return f"Waited for {seconds}, since nobody has ever answered there; {name}= makes it longer"
        return f"Waited for {name} ({seconds})" if name else f"Waited for {seconds}"

    def _sentence(self, what: str, reason: str) -> str:
        servers = self._options.bootstrap_servers
        return f"can't get {what} from Kafka at {servers}: {self._options.redact(reason)}"

    def _on_error(self, error: KafkaError) -> None:
        refusal = connection_failure(error.str(), self._options.bootstrap_servers)
        if error.code() in _AUTHENTICATION or refusal is not None:
            self._refusal = error.str() if refusal is None else str(refusal)
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._last_error == "no answer":
            self._last_error = error.str()
        if self._is_asking:
            self._trouble = self._last_error


def _listed(names: Sequence[str]) -> str:
    """Topics for a message: "topic 'a'", or "topic 'a' and 2 more"."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"topic {names[0]!r}{more}"
