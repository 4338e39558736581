"""OperatorState: what an operator leaves at a barrier and is restored from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from onceflow.runtime.contracts import Json


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The frozen state of one operator subtask at a barrier, or what it is restored from.

    Each table's first column is `key_group` (uint16, not null); the engine hands back, at restore, only the
    rows of the key groups that the new subtask owns, in no particular order. `meta` is
    small and JSON, the same for all key groups of the state. Tables are immutable: an operator that
    goes on must not write into their buffers.
    """

    key_groups: range
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    meta: Mapping[str, Json] = field(default_factory=dict)
