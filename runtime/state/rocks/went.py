"""Went: what became of units with changes that no durable snapshot has: they are in RocksDB, or gone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onceflow.runtime.state.increments import NO_IDENTITIES
from onceflow.runtime.state.rocks.row_ids import Identities, last_places


class _Part(NamedTuple):
    identities: Identities
    changed_in: npt.NDArray[np.int32]
    is_there: bool


class Went:
    """One thread."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        """What was noted, the earliest first."""
        self.nbytes = 0
        """What it takes in memory, which grows with what has changed since the last durable snapshot."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def note(self, identities: Identities, changed_in: npt.NDArray[np.int32], is_there: bool) -> None:
        """These units went to RocksDB, or were forgotten there; `changed_in`: the first snapshot that has the
        latest change of each."""
        self._parts.append(_Part(identities, changed_in, is_there))
        self.nbytes += identities.nbytes + changed_in.nbytes

    def since(self, base: int) -> Identities:
        """The units that RocksDB has with changes which the snapshot `base` has not, each once, in the order
        of their ids. What that snapshot has is asked for no more."""
        # Without a snapshot to build on the next one is whole, and none will ever ask for what it has.
        self._parts = [part for part in self._parts if base >= 0 and (part.changed_in > base).any()]
        self.nbytes = sum(part.identities.nbytes + part.changed_in.nbytes for part in self._parts)
        if not self._parts:
            return NO_IDENTITIES
        ids = np.concatenate([part.identities for part in self._parts])
        is_there = np.concatenate([np.full(len(part.identities), part.is_there) for part in self._parts])
        is_new = np.concatenate([part.changed_in for part in self._parts]) > base
        last = last_places(ids)
        return np.asarray(ids[last[is_there[last] & is_new[last]]])
