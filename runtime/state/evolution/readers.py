"""Readers: the types under which a program reads each part of an operator's state.

A graph's node has them beside the description of its state: the description is data that goes into manifests,
they are types with defaults and former names, which go to the slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from onceflow.runtime.types.value_types import ValueType


@dataclass(frozen=True, slots=True)
class Reader:
    """One part. `path`: the column of the table that has it, and the field of that if it is a struct of
    parts; empty: it is in no table, and its operator reads it by itself."""

    path: tuple[str, ...]
    type: ValueType


Readers: TypeAlias = Mapping[str, Reader]
"""The readers by the names of parts in the description. A part without one has to have the type it had."""
