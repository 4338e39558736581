"""LedgerOwner: whose row of a ledger's table it is, and who writes under it. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from onceflow.runtime.errors import Fenced, Retryable


@dataclass(frozen=True, slots=True)
class LedgerOwner:
    """An owner in one attempt of the job; see TargetContext."""

    lineage: str
    uid: str
    owner: str
    job: str
    attempt: int

    @property
    def key(self) -> tuple[str, str, str]:
        """What no other ledger has."""
        return (self.lineage, self.uid, self.owner)

    @property
    def digest(self) -> str:
        """64 hex digits for the key, for names that may not be long."""
        return hashlib.sha256("\n".join(self.key).encode()).hexdigest()

    def fenced(self) -> Fenced:
        return Fenced(f"a newer attempt writes the output of sink {self.uid!r}, subtask {self.owner}")

    def not_advanced(self, attempt: int | None, checkpoint_id: int | None) -> Fenced | Retryable:
        """Why a ledger could not be advanced that says this; None: it is not there."""
        if attempt is not None and attempt != self.attempt:
            return self.fenced()
        return Retryable(f"the ledger of sink {self.uid!r}, subtask {self.owner}, is at {checkpoint_id}")
