"""Readers: the types under which a program reads each part of an operator's state.

A graph's node has them beside the description of its state: the description is data that goes into manifests,
they are types with defaults and former names, which go to the slots.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from onceflow.runtime.types.value_types import ValueType


@dataclass(frozen=True, slots=True)
class Reader:
    """One part. `path`: the column of the table that has it, and the field of that if it is a struct of
    parts; empty: it is in no table, and its operator reads it by itself."""

    path: tuple[str, ...]
    type: ValueType
    former_names: tuple[str, ...] = ()
    """What the part was called before."""


Readers: TypeAlias = Mapping[str, Reader]
"""The readers by the names of parts in the description. A part without one has to have the type it had."""


def names_kept_as(
    readers: Readers, now: Collection[str], kept: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Which former names, of those under which parts were kept, each part of the program may mean. A part
    that was kept under its own name means none, and none means a name that another part has now."""
    found = {}
    for name, reader in readers.items():
        meant = tuple(each for each in reader.former_names if each in kept and each not in now)
        if name not in kept and meant:
            found[name] = meant
    return found
