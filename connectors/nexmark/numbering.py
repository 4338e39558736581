"""Which event has which number: of each 50, the first is a person, three are auctions, and 46 are bids.
Pure."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from onceflow.runtime.records import Int64s

Kind: TypeAlias = Literal["person", "auction", "bid"]
TURN = 50
SHARES: dict[Kind, tuple[int, int]] = {"person": (0, 1), "auction": (1, 3), "bid": (4, 46)}
"""The place in each turn at which events of a kind begin, and how many they are."""


def event_numbers(kind: Kind, numbers: Int64s) -> Int64s:
    """The number, among all events, of the n-th of this kind."""
    first, count = SHARES[kind]
    return numbers // count * TURN + first + numbers % count


def count_of(kind: Kind, events: int) -> int:
    """How many of the first `events` events are of this kind."""
    first, count = SHARES[kind]
    return events // TURN * count + min(max(events % TURN - first, 0), count)


def made_before(kind: Kind, events: Int64s) -> Int64s:
    """How many of this kind come up to each of these events, itself included; 1 at least."""
    first, count = SHARES[kind]
    made = events // TURN * count + np.clip(events % TURN - first + 1, 0, count)
    return np.maximum(made, 1)
