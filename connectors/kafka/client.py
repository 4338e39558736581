"""KafkaClient: the few calls of a Kafka client that the exactly-once sink needs, as a protocol.

`transactions/librdkafka_client.py` implements it on a real broker, `testing/fake.py` in memory. Every call
raises the errors of runtime/errors.py: Retryable (it did not happen, or it can be asked again), Indeterminate
(a commit that may have happened), Fenced (a newer producer with this transactional id exists), Fatal (an ACL,
a password or a setting is wrong: the sentence names the resource and what to do).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

PRODUCE_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("key", pa.large_binary()),
        pa.field("value", pa.large_binary()),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        pa.field("timestamp", pa.int64()),  # ms since the epoch; null: the time at which it is sent
    ]
)
"""Records as they go to the broker."""


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """Where one owner's ledger is: the offset of this group in partition 0 of this topic.

    The transactional id is the group's name too, so that one ACL prefix covers both. What the group commits
    in partition 1 shows that a read of the ledger is of now (`KafkaClient.newest_ledger`).
    """

    transactional_id: str
    topic: str


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What the broker gave to a producer: requests and records with an older epoch are refused."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The highest checkpoint whose output is committed, and who wrote that (metadata)."""

    checkpoint_id: int
    metadata: str


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """What a sink must know of a topic. None: the broker does not let us read its configuration."""

    partitions: int
    max_message_bytes: int | None = None
    retention_ms: int | None = None
    uses_append_time: bool = False


class TransactionalProducer(Protocol):
    """A producer whose transactional id is initialised: older producers with it are fenced.

    After any error but BufferError-like waiting, which it does itself, it is not used any more.
    """

    def begin(self) -> None: ...

    def produce(self, rows: pa.RecordBatch) -> None:
        """Queue rows (PRODUCE_SCHEMA); blocks while the queue is full."""
        ...

    def flush(self) -> int:
        """Wait for all of them. The number of rows of this transaction that the broker has acknowledged."""
        ...

    @property
    def identity(self) -> ProducerIdentity:
        """Whom the broker takes it for: another process that knows this can end its transaction."""
        ...

    def send_ledger(self, entry: LedgerEntry) -> None:
        """Put the ledger to this value as part of the open transaction."""
        ...

    def commit(self) -> None: ...

    def doubt(self) -> str | None:
        """Why a request of the last commit may still be under way; None: it can't be. Rule 4."""
        ...

    def abort(self) -> None:
        """Abort the transaction, before commit was called, when the output can't be sent at all. Best effort,
        raises nothing."""
        ...

    def discard(self) -> None:
        """Never use it again. Does not wait for the broker and tells it nothing."""
        ...


class KafkaClient(Protocol):
    """A connection to the brokers. One thread at a time calls it, except describe_topics."""

    def open_producer(self, ledger: LedgerKey) -> TransactionalProducer:
        """A new producer, initialised: the broker has fenced every older one, and has ended its
        transaction (committed if it was being committed, else aborted)."""
        ...

    def read_ledger(self, ledger: LedgerKey) -> LedgerEntry | None:
        """A value that was committed; waits for a transaction that is being committed. None: never written,
        expired or deleted, which look the same. A later one may have been committed since: a broker that was
        frozen, while another took its place, answers with what it knew until it learns of it."""
        ...

    def newest_ledger(self, ledger: LedgerKey) -> LedgerEntry | None:
        """The value that was committed last when it was called, else as `read_ledger`. It costs a write."""
        ...

    def ensure_ledger_topic(self, topic: str) -> None:
        """Create the empty topic if it is not there, and give it a second partition if it has one."""
        ...

    def describe_topics(self, topics: Sequence[str]) -> Mapping[str, TopicDescription]:
        """Topics that do not exist are left out. Creates nothing."""
        ...

    def offsets_retention_ms(self) -> int:
        """The time without a commit after which the broker forgets a ledger, in ms."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class TwoPhaseClient(KafkaClient, Protocol):
    """A client that ends transactions which another producer, maybe of a process that is dead, has left
    open. Every call may be made again. Raises OptionError too: brokers can't be reached so, since librdkafka
    has no call for it."""

    def commit_prepared(self, transactional_id: str, identity: ProducerIdentity) -> bool:
        """Commit what this producer has left open. True: it is committed, now or already. False: the broker
        does not know of it any more, since a newer producer has used the id, or it was aborted: what the
        ledger says tells which."""
        ...

    def fence(self, transactional_ids: Sequence[str]) -> None:
        """Refuse every producer that there is of these ids, and abort what they left open."""
        ...

    def read_ledgers(self, ledgers: Sequence[LedgerKey]) -> Sequence[LedgerEntry | None]:
        """The committed value of each, as `newest_ledger` has it."""
        ...
