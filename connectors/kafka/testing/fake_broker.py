"""FakeKafka: a broker in memory with what exactly-once output rests on: transactional ids with epochs and
fencing, transactions, the ledger, read_committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey, TopicDescription
from onceflow.runtime.errors import Fenced, Retryable

Row = dict[str, Any]
"""A record as PRODUCE_SCHEMA has it."""


@dataclass(slots=True)
class _Transaction:
    """What the coordinator knows of one transactional id."""

    epoch: int = -1
    is_open: bool = False
    is_committed: bool = False
    """The last one of this epoch; asked again, the coordinator says so again."""
    rows: list[Row] = field(default_factory=list)
    offset: tuple[LedgerKey, LedgerEntry] | None = None


@dataclass(slots=True)
class FakeKafka:
    """The broker. It outlives its clients; `visible` is what a read_committed reader sees, in order."""

    topics: dict[str, TopicDescription] = field(default_factory=dict)
    visible: list[Row] = field(default_factory=list)
    ledgers: dict[LedgerKey, LedgerEntry] = field(default_factory=dict)
    ledgers_before: dict[LedgerKey, LedgerEntry | None] = field(default_factory=dict)
    """What a coordinator has that was replaced before the last commit."""
    late: list[Callable[[], None]] = field(default_factory=list)
    """Requests that are still under way: each arrives once, at any step, or never."""
    _transactions: dict[str, _Transaction] = field(default_factory=dict)

    def init(self, transactional_id: str) -> int:
        """Fence the older epochs and abort what they left open."""
        known = self._transactions.setdefault(transactional_id, _Transaction())
        self._transactions[transactional_id] = _Transaction(epoch=known.epoch + 1)
        return known.epoch + 1

    def produce(self, transactional_id: str, epoch: int, rows: Sequence[Row]) -> None:
        transaction = self._current(transactional_id, epoch)
        transaction.is_open = True
        transaction.rows.extend(rows)

    def offset_commit(self, ledger: LedgerKey, epoch: int, entry: LedgerEntry) -> None:
        """A real broker takes it also when it comes after its own transaction: into the next one."""
        self._current(ledger.transactional_id, epoch).offset = (ledger, entry)

    def end(self, transactional_id: str, epoch: int) -> None:
        """Commit what is open, whoever's rows that are; OK if there is nothing."""
        transaction = self._current(transactional_id, epoch)
        self.visible.extend(transaction.rows)
        if transaction.offset is not None:
            ledger, entry = transaction.offset
            if entry.checkpoint_id >= 0:  # dropped without a word, as the real one does
                self.ledgers_before[ledger] = self.ledgers.get(ledger)
                self.ledgers[ledger] = entry
        self._transactions[transactional_id] = _Transaction(epoch=epoch, is_committed=True)

    def end_by_anybody(self, transactional_id: str, epoch: int) -> bool:
        """Commit what is open in this epoch, as the coordinator does for who knows the epoch. False: nothing
        is, and nothing was committed last."""
        known = self._transactions.get(transactional_id)
        if known is None or known.epoch != epoch or not (known.is_open or known.is_committed):
            return False
        if known.is_open:
            self.end(transactional_id, epoch)
        return True

    def time_out(self, transactional_id: str) -> None:
        """Abort what is open after its timeout, which fences its producer."""
        if self._transactions[transactional_id].is_open:
            self.init(transactional_id)

    @property
    def open_ids(self) -> Sequence[str]:
        """The transactional ids whose transactions readers wait for."""
        return [name for name, known in self._transactions.items() if known.is_open]

    def stable_ledger(self, ledger: LedgerKey) -> LedgerEntry | None:
        """Raises Retryable while a transaction is open that has the ledger in it."""
        if any(
            known.offset is not None and known.offset[0] == ledger for known in self._transactions.values()
        ):
            raise Retryable(f"the ledger of {ledger.transactional_id} waits for a transaction")
        return self.ledgers.get(ledger)

    def abort(self, transactional_id: str, epoch: int) -> None:
        """Nothing of what is open was ever there."""
        self._current(transactional_id, epoch)
        self._transactions[transactional_id] = _Transaction(epoch=epoch)

    def open_rows(self, transactional_id: str) -> Sequence[Row]:
        """What is in its transaction and not visible."""
        return self._transactions[transactional_id].rows

    def forget_ledger(self, ledger: LedgerKey) -> None:
        """Lose this ledger, as if its offsets had expired."""
        self.ledgers.pop(ledger, None)

    def _current(self, transactional_id: str, epoch: int) -> _Transaction:
        transaction = self._transactions[transactional_id]
        if transaction.epoch != epoch:
            raise Fenced(f"epoch {epoch} of {transactional_id} is older than {transaction.epoch}")
        return transaction
