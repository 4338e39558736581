"""Promise: what a checkpoint says of a Kafka sink's output that no ledger read has confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onceflow.connectors.kafka.client import LedgerKey
from onceflow.connectors.kafka.transactions.held import StagedOutput
from onceflow.runtime.contracts import Committable, Json
from onceflow.runtime.errors import CorruptCheckpointError

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Promise:
    """What a checkpoint promises of one owner: whoever restores it commits the outputs under this ledger."""

    ledger: LedgerKey
    last_seen: int | None
    """What the ledger said when it was last read."""
    outputs: Sequence[StagedOutput]

    def to_json(self) -> Json:
        return {
            "version": _VERSION,
            "transactional_id": self.ledger.transactional_id,
            "ledger_topic": self.ledger.topic,
            "ledger": self.last_seen,
            "outputs": [output.to_json() for output in self.outputs],
        }

    @staticmethod
    def of(committable: Committable) -> Promise:
        """Raises CorruptCheckpointError if it can't be read."""
        payload: Any = committable.payload
        try:
            return Promise(
                LedgerKey(payload["transactional_id"], payload["ledger_topic"]),
                int(payload["ledger"]),
                [StagedOutput.from_json(output) for output in payload["outputs"]],
            )
        except (KeyError, TypeError, ValueError) as e:
            raise CorruptCheckpointError(
                f"checkpoint {committable.checkpoint_id} holds no readable output of sink "
                f"{committable.uid!r}, owner {committable.owner}: {e!r}"
            ) from e
