"""Row ids: both hashes of a key as 16 bytes, so that their order is that of the hashes, and of key groups.

A key group is a range of hashes (key_groups.py). So rows sorted by id lie key group by key group, for any
`max_parallelism`, without the group's number in front.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from onceflow.runtime.records import Mask, UInt64s

ID_BYTES = 16
_BIG_ENDIAN = np.dtype(">u8")

Identities = npt.NDArray[np.uint64]
"""Both hashes by row: shape (rows, 2)."""


def row_ids(identities: Identities) -> list[bytes]:
    """An id for each."""
    ids: list[bytes] = identities.astype(_BIG_ENDIAN).view(f"V{ID_BYTES}").reshape(-1).tolist()
    return ids


def identities_of(ids: Sequence[bytes]) -> Identities:
    """The inverse of `row_ids`."""
    return np.frombuffer(b"".join(ids), _BIG_ENDIAN).reshape(-1, 2).astype(np.uint64)


def in_order(identities: Identities) -> Identities:
    """Sorted as their ids are."""
    return identities[order_of(identities)]


def order_of(identities: Identities) -> npt.NDArray[np.int64]:
    """The places of these identities, in the order of their ids; equal ones in their own."""
    places = np.argsort(identities[:, 0], kind="stable")
    ordered = identities[:, 0][places]
    if (ordered[1:] == ordered[:-1]).any():  # keys that share their first hash, or one that is there twice
        return np.lexsort((identities[:, 1], identities[:, 0]))
    return places


def distinct(identities: Identities) -> Identities:
    """Sort them as their ids are, and keep each once."""
    return identities[last_places(identities)]


def last_places(identities: Identities) -> npt.NDArray[np.int64]:
    """Where each of them is for the last time, in the order of their ids."""
    places = order_of(identities)
    ordered = identities[places]
    is_last = np.ones(len(ordered), np.bool_)
    is_last[:-1] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return np.asarray(places[is_last])


def are_among(some: Identities, among: Identities) -> Mask:
    """Whether each is one of those, which are in order."""
    first, last = (_places(among[:, 0], some[:, 0], side) for side in ("left", "right"))
    found = np.zeros(len(some), np.bool_)
    one = np.flatnonzero(last - first == 1)
    found[one] = among[first[one], 1] == some[one, 1]
    for place in np.flatnonzero(last - first > 1).tolist():  # keys that share their first hash
        found[place] = some[place, 1] in among[first[place] : last[place], 1]
    return found


def _places(sorted_hashes: UInt64s, hashes: UInt64s, side: str) -> npt.NDArray[np.int64]:
    return np.searchsorted(sorted_hashes, hashes, side=side)  # type: ignore[call-overload, no-any-return]
