"""Expiries: when what is remembered expires, as a column of the table beside the states."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from onceflow.runtime.records import Indices
from onceflow.runtime.state.expiring_values import ExpiringValues
from onceflow.runtime.state.table import Frozen, LiveRows


class Expiries:
    """The times of all states that expire by the same time, event time or the clock: a struct with a field
    for each state. The states themselves keep the times in step with the rows."""

    def __init__(self, name: str, states: Mapping[str, ExpiringValues]) -> None:
        """`name`: of the column in a snapshot."""
        self.name = name
        self.states = states

    def grow(self, size: int) -> None:
        pass

    def clear(self, rows: Indices) -> None:
        pass

    def keep(self, rows: Indices) -> None:
        pass

    def freeze(self, live: LiveRows) -> Frozen:
        frozen = {name: state.freeze_times() for name, state in self.states.items()}

        def struct(rows: Indices) -> pa.Array:
            arrays = [times(rows) for times in frozen.values()]
            return pa.StructArray.from_arrays(arrays, names=list(frozen))

        return struct

    def load(self, rows: Indices, values: pa.Array) -> None:
        for name, state in self.states.items():
            if values.type.get_field_index(name) >= 0:
                state.load_times(rows, values.field(name))

    def without_times(self, snapshot: pa.Schema) -> Mapping[str, ExpiringValues]:
        """The states of which a snapshot with these columns has values at most, and no times: they were
        written without a time to live, or with one of the other kind of time."""
        index = snapshot.get_field_index(self.name)
        known = {field.name for field in snapshot.field(index).type} if index >= 0 else set()
        return {name: state for name, state in self.states.items() if name not in known}
