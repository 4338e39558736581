"""Aggregates that keep a sketch of each row's values: KLL for quantiles, HyperLogLog for distinct counts.

A sketch is an object of Apache DataSketches, and in a snapshot its serialised bytes, which any version and
language of the library reads.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.operators.aggregation.accumulator import Arrivals
from onceflow.runtime.operators.aggregation.quantiles import numbers_of, pieces
from onceflow.runtime.operators.aggregation.sketch_library import sketch_library
from onceflow.runtime.records import Indices
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.table import Frozen, LiveRows

LG_K = 12
"""Registers of a HyperLogLog sketch, as a power of two: 4,096 of a byte each."""


class SketchKind(Protocol):
    """What is done with sketches of one kind."""

    def taken(self, arrivals: Arrivals) -> tuple[Indices, npt.NDArray[Any]]:
        """The rows, and what goes into their sketches."""
        ...

    def new(self) -> Any: ...

    def add(self, sketch: Any, values: npt.NDArray[Any]) -> None: ...

    def merged(self, sketch: Any, other: Any) -> Any:
        """Both as one: `sketch`, changed, or a new one. The other stays as it is."""
        ...

    def to_bytes(self, sketch: Any) -> bytes: ...

    def from_bytes(self, state: bytes) -> Any: ...

    def results(self, sketches: list[Any]) -> pa.Array:
        """The results; None among the sketches: it has seen no value."""
        ...


class Sketches:
    """A sketch of each row's values. One that a snapshot has is copied before it is changed."""

    def __init__(self, kind: SketchKind) -> None:
        self._kind = kind
        self._sketches: list[Any] = []
        self._shared: set[int] = set()
        """Rows whose sketch a snapshot has as well."""

    def grow(self, size: int) -> None:
        self._sketches.extend([None] * (size - len(self._sketches)))

    def update(self, arrivals: Arrivals) -> None:
        rows, values = self._kind.taken(arrivals)
        order = stable_order(rows)
        for row, mine in zip(*pieces(rows[order], values[order]), strict=True):
            self._kind.add(self._own(row), mine)

    def merge(self, rows: Indices, other: Self, other_rows: Indices) -> None:
        for row, other_row in zip(rows.tolist(), other_rows.tolist(), strict=True):
            more = other._sketches[other_row]
            if more is not None:
                self._sketches[row] = self._kind.merged(self._own(row), more)

    def results(self, rows: Indices) -> pa.Array:
        return self._kind.results([self._sketches[row] for row in rows.tolist()])

    def clear(self, rows: Indices) -> None:
        for row in rows.tolist():
            self._sketches[row] = None
            self._shared.discard(row)

    def keep(self, rows: Indices) -> None:
        sketches, shared, kept = self._sketches, self._shared, rows.tolist()
        self._sketches = [sketches[row] for row in kept]
        self._shared = {place for place, row in enumerate(kept) if row in shared}

    def freeze(self, live: LiveRows) -> Frozen:
        sketches, to_bytes = live.copied(self._sketches), self._kind.to_bytes
        self._shared.update(row for row in live.all().tolist() if self._sketches[row] is not None)

        def state(rows: Indices) -> pa.Array:
            return pa.array([None if s is None else to_bytes(s) for s in sketches(rows)], pa.binary())

        return state

    def load(self, rows: Indices, state: pa.Array) -> None:
        for row, sketch in zip(rows.tolist(), state.to_pylist(), strict=True):
            if sketch is not None:
                self._sketches[row] = self._kind.from_bytes(sketch)

    def _own(self, row: int) -> Any:
        """The sketch of this row, which may be changed."""
        sketch = self._sketches[row]
        if sketch is None:
            sketch = self._sketches[row] = self._kind.new()
        elif row in self._shared:
            sketch = self._sketches[row] = self._kind.from_bytes(self._kind.to_bytes(sketch))
            self._shared.discard(row)
        return sketch


class Kll:
    """Sketches of numbers, for quantiles. What they leave out is drawn at random, so two runs may differ
    within the bound of the error."""

    def __init__(self, rank: float, k: int) -> None:
        self._rank = rank
        self._k = k
        self._class = sketch_library().kll_doubles_sketch

    def taken(self, arrivals: Arrivals) -> tuple[Indices, npt.NDArray[Any]]:
        return numbers_of(arrivals)

    def new(self) -> Any:
        return self._class(self._k)

    def add(self, sketch: Any, values: npt.NDArray[Any]) -> None:
        sketch.update(values)

    def merged(self, sketch: Any, other: Any) -> Any:
        sketch.merge(other)
        return sketch

    def to_bytes(self, sketch: Any) -> bytes:
        return bytes(sketch.serialize())

    def from_bytes(self, state: bytes) -> Any:
        return self._class.deserialize(state)

    def results(self, sketches: list[Any]) -> pa.Array:
        rank = self._rank
        return pa.array([None if s is None else s.get_quantile(rank, True) for s in sketches], pa.float64())


class Hll:
    """Sketches of hashes, for how many different ones there are. The hashes are those of keys, which are
    pinned for good: another process, or another program, adds to the same sketch."""

    def __init__(self) -> None:
        self._library = sketch_library()

    def taken(self, arrivals: Arrivals) -> tuple[Indices, npt.NDArray[Any]]:
        values = pa.RecordBatch.from_arrays([arrivals.values], ["value"])
        return arrivals.rows, hash_keys(values, ["value"]).view(np.int64)

    def new(self) -> Any:
        return self._library.hll_sketch(LG_K, self._library.HLL_8)

    def add(self, sketch: Any, values: npt.NDArray[Any]) -> None:
        update = sketch.update
        for value in values.tolist():
            update(value)

    def merged(self, sketch: Any, other: Any) -> Any:
        union = self._library.hll_union(LG_K)
        union.update(sketch)
        union.update(other)
        return union.get_result(self._library.HLL_8)

    def to_bytes(self, sketch: Any) -> bytes:
        return bytes(sketch.serialize_compact())

    def from_bytes(self, state: bytes) -> Any:
        return self._library.hll_sketch.deserialize(state)

    def results(self, sketches: list[Any]) -> pa.Array:
        return pa.array([0 if s is None else self._estimate(s) for s in sketches], pa.int64())

    def _estimate(self, sketch: Any) -> int:
        """What the registers alone say: a sketch that was never merged would give another number, which
        depends on the order in which its values came."""
        estimate: float = self.merged(sketch, sketch).get_estimate()
        return round(estimate)
