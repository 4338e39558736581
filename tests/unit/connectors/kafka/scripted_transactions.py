"""ScriptedTransactions: the transactions of one transactional id, as Kafka keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import KafkaError
from kafka.record.default_records import DefaultRecordBatch

from onceflow.connectors.kafka.client import LedgerEntry, ProducerIdentity

PRODUCER_ID = 7

Place = tuple[str, int]


@dataclass
class _Open:
    """What is in the open transaction."""

    added: set[Place] = field(default_factory=set)
    values: list[tuple[str, int, bytes]] = field(default_factory=list)
    ledger: LedgerEntry | None = None
    has_begun: bool = False


class ScriptedTransactions:
    """What it takes it takes as Kafka would: of the newest epoch only, in the order of the sequence numbers,
    into partitions that were added. Each call answers a Kafka error code, or 0."""

    def __init__(self, batch_bytes_max: int) -> None:
        """`batch_bytes_max`: a larger batch is refused."""
        self.visible: list[tuple[str, int, bytes]] = []
        """Topic, partition and value of what is committed."""
        self.ledger: LedgerEntry | None = None
        self.epoch = -1
        self.refusal: int = KafkaError.MSG_SIZE_TOO_LARGE
        """What is said of a batch that is too large."""
        self._batch_bytes_max = batch_bytes_max
        self._open = _Open()
        self._sequences: dict[Place, int] = {}
        self._was_committed = False
        """Whether the last transaction that ended was."""

    def init(self) -> ProducerIdentity:
        """A new epoch; what was open is aborted."""
        self.epoch += 1
        self._open, self._sequences = _Open(), {}
        return ProducerIdentity(PRODUCER_ID, self.epoch)

    def add(self, epoch: int, places: set[Place], is_applied: bool) -> int:
        if epoch != self.epoch:
            return int(KafkaError.INVALID_PRODUCER_EPOCH)
        if is_applied:
            self._open.has_begun = True
            self._open.added |= places
        return 0

    def append(self, place: Place, batch: bytes, is_applied: bool) -> int:
        records = DefaultRecordBatch(bytearray(batch))
        if records.producer_epoch != self.epoch:
            return int(KafkaError.INVALID_PRODUCER_EPOCH)
        if len(batch) > self._batch_bytes_max:
            return self.refusal
        if place not in self._open.added:
            return int(KafkaError.INVALID_TXN_STATE)
        next_sequence = self._sequences.get(place, 0)
        if records.base_sequence + records.records_count <= next_sequence:
            return 0  # it was taken, and is sent again
        if records.base_sequence != next_sequence:
            return int(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if is_applied:
            self._sequences[place] = records.base_sequence + records.records_count
            self._open.values += [(*place, each.value) for each in records]
        return 0

    def hold(self, epoch: int, entry: LedgerEntry, is_applied: bool) -> int:
        """The ledger's entry, as part of the transaction."""
        if epoch != self.epoch:
            return int(KafkaError.INVALID_PRODUCER_EPOCH)
        if is_applied:
            self._open.ledger = entry
        return 0

    @property
    def has_pending_ledger(self) -> bool:
        return self._open.ledger is not None

    def end(self, epoch: int, is_commit: bool, is_applied: bool) -> int:
        if epoch != self.epoch:
            return int(KafkaError.INVALID_PRODUCER_EPOCH)
        if not self._open.has_begun:  # ended before: the same again is no mistake
            return 0 if is_commit == self._was_committed else int(KafkaError.INVALID_TXN_STATE)
        if is_applied:
            if is_commit:
                self.visible += self._open.values
                self.ledger = self._open.ledger or self.ledger
            self._was_committed = is_commit
            self._open = _Open()
        return 0

    def commit(self, identity: ProducerIdentity, ledger: LedgerEntry) -> None:
        """Ledger and end at once, by a client that asks nobody for it."""
        assert identity.epoch == self.epoch
        self._open.ledger, self._open.has_begun = ledger, True
        self.end(identity.epoch, is_commit=True, is_applied=True)
