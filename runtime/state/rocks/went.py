"""Went: what became of units with changes that no durable snapshot has: they are in RocksDB, or gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onceflow.runtime.state.increments import HASH_MAX, NO_IDENTITIES
from onceflow.runtime.state.rocks.row_ids import Identities, last_places

_RANGE_UNITS = 1 << 17
"""About so many are put in order at once: it takes three times as much memory as they do."""


class _Part(NamedTuple):
    identities: Identities
    changed_in: npt.NDArray[np.int32]
    last_changed_in: int
    is_there: bool


class Went:
    """One thread."""

    def __init__(self, range_units: int = _RANGE_UNITS) -> None:
        """`range_units`: about so many are put in order at once."""
        self._range_units = range_units
        self._parts: list[_Part] = []
        """What was noted, the earliest first."""
        self.nbytes = 0
        """What it takes in memory, which grows with what has changed since the last durable snapshot."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def note(self, identities: Identities, changed_in: npt.NDArray[np.int32], is_there: bool) -> None:
        """These units went to RocksDB, or were forgotten there; `changed_in`: the first snapshot that has the
        latest change of each."""
        if len(identities):
            self._parts.append(_Part(identities, changed_in, int(changed_in.max()), is_there))
            self.nbytes += identities.nbytes + changed_in.nbytes

    def freeze(self, base: int) -> FrozenWent:
        """What became of units since the snapshot `base`. What that one has is asked for no more."""
        # Without a snapshot to build on the next one is whole, and none will ever ask for what it has.
        self._parts = [part for part in self._parts if base >= 0 and part.last_changed_in > base]
        self.nbytes = sum(part.identities.nbytes + part.changed_in.nbytes for part in self._parts)
        return FrozenWent(tuple(self._parts), base, self._range_units)


class FrozenWent:
    """What a snapshot has to look for in RocksDB; read by any thread. Nothing is put in order before it is
    asked for, since that takes long where much has changed, and a whole snapshot never asks."""

    def __init__(self, parts: Sequence[_Part], base: int, range_units: int = _RANGE_UNITS) -> None:
        self._parts = parts
        self._base = base
        self._range_units = range_units

    def __len__(self) -> int:
        """How many units there are at most: those that went several times are counted as often."""
        return sum(len(part.identities) for part in self._parts if part.is_there)

    def between(self, first: int, last: int) -> Iterator[Identities]:
        """The units with a hash from one to another that RocksDB has with changes which the base has not,
        each once, in the order of their ids: some at a time."""
        noted = sum(len(part.identities) for part in self._parts)
        step = (HASH_MAX + 1) // (noted // self._range_units + 1) + 1
        while first <= last:
            end = min(last, first + step - 1)
            if len(found := self._range(np.uint64(first), np.uint64(end))):
                yield found
            first = end + 1

    def _range(self, first: np.uint64, last: np.uint64) -> Identities:
        no = np.zeros(0, np.bool_)
        ids, is_there, is_new = [NO_IDENTITIES], [no], [no]
        for part in self._parts:
            hashes = part.identities[:, 0]
            chosen = np.flatnonzero((hashes >= first) & (hashes <= last))
            ids.append(part.identities[chosen])
            is_there.append(np.full(len(chosen), part.is_there))
            is_new.append(part.changed_in[chosen] > self._base)
        found = np.concatenate(ids)
        last_ones = last_places(found)
        counts = np.concatenate(is_there)[last_ones] & np.concatenate(is_new)[last_ones]
        return np.asarray(found[last_ones[counts]])
