"""PreparedPromise: what a checkpoint says of transactions that are prepared, and have to be committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onceflow.connectors.kafka.client import LedgerKey, ProducerIdentity
from onceflow.runtime.contracts import Committable, Json
from onceflow.runtime.errors import CorruptCheckpointError

_VERSION = 1
_FIELD = "prepared"


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """All records of one checkpoint that one owner wrote, acknowledged, in a transaction that is open."""

    checkpoint_id: int
    transactional_id: str
    """Its ledger is its own: the offset of a group of this name."""
    identity: ProducerIdentity
    rows: int


@dataclass(frozen=True, slots=True)
class PreparedPromise:
    """What a checkpoint promises of one owner: whoever restores it commits these transactions."""

    owner: LedgerKey
    """What the owner's transactional ids begin with, and the topic of their ledgers."""
    attempt: int
    """The attempt that took the checkpoint."""
    transactions: Sequence[PreparedTransaction]

    def to_json(self) -> Json:
        return {
            "version": _VERSION,
            "transactional_id": self.owner.transactional_id,
            "ledger_topic": self.owner.topic,
            "attempt": self.attempt,
            _FIELD: [asdict(transaction) for transaction in self.transactions],
        }

    @staticmethod
    def is_in(committable: Committable) -> bool:
        """Whether it is one of these, and not of output that is staged: a sink may have been changed from
        the one to the other."""
        return _FIELD in committable.payload

    @staticmethod
    def of(committable: Committable) -> PreparedPromise:
        """Raises CorruptCheckpointError if it can't be read."""
        payload: Any = committable.payload
        try:
            return PreparedPromise(
                LedgerKey(payload["transactional_id"], payload["ledger_topic"]),
                int(payload["attempt"]),
                [
                    PreparedTransaction(
                        int(each["checkpoint_id"]),
                        str(each["transactional_id"]),
                        ProducerIdentity(**each["identity"]),
                        int(each["rows"]),
                    )
                    for each in payload[_FIELD]
                ],
            )
        except (KeyError, TypeError, ValueError) as e:
            raise CorruptCheckpointError(
                f"checkpoint {committable.checkpoint_id} holds no readable transactions of sink "
                f"{committable.uid!r}, owner {committable.owner}: {e!r}"
            ) from e
