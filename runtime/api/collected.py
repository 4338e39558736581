"""Collected: the rows of `stream.collect()`, in the process that has run the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, overload

import polars as pl
import pyarrow as pa

from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.errors import UsageError
from onceflow.runtime.graph.steps import Rows
from onceflow.runtime.types.records_of_columns import RecordReader

T = TypeVar("T")

COLLECTED_BYTES_MAX = 256 << 20
_SHOWN_MAX = 100


class Collected(Sequence[T]):
    """The rows that came to `stream.collect()`: records of the stream's type, or dicts. Filled while the job
    runs, there to be looked at when it has: a look before that raises UsageError.

    It equals a list of the same rows. Their order is that of the checkpoints, and within one that of the
    subtasks.
    """

    def __init__(self, job: str, uid: str, rows: Rows) -> None:
        self._job = job
        self._uid = uid
        self._rows = rows
        self._lineage: str | None = None
        """Names the run whose rows are in it; None: no job has run."""
        self._batches: list[pa.RecordBatch] = []
        self._records: list[T] | None = None
        """The rows as records; None: not asked for yet."""
        self._bytes = 0
        self._outcome: Outcome | None = None

    def to_arrow(self) -> pa.Table:
        """The rows as a table."""
        self._check()
        return pa.Table.from_batches(self._batches, self._rows.schema)

    def to_polars(self) -> pl.DataFrame:
        """The rows as a data frame."""
        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self._all()[index]

    def __len__(self) -> int:
        self._check()
        return sum(batch.num_rows for batch in self._batches)

    def __iter__(self) -> Iterator[T]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == (list(other) if isinstance(other, Sequence) else other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        if (missing := self._missing()) is not None:
            return f"<{missing}>"
        records = self._all()
        more = f" and {len(records) - _SHOWN_MAX} more" if len(records) > _SHOWN_MAX else ""
        return f"{records[:_SHOWN_MAX]}{more}"

    def _repr_html_(self) -> str | None:
        """How a notebook shows it."""
        return None if self._missing() is not None else self.to_polars()._repr_html_()

    def _all(self) -> list[T]:
        self._check()
        if self._records is None:
            record_type = self._rows.record_type
            read: Any = _dicts if record_type is None else RecordReader(record_type).read
            self._records = [record for batch in self._batches for record in read(batch)]
        return self._records

    def _check(self) -> None:
        if (missing := self._missing()) is not None:
            raise UsageError(missing)

    def _missing(self) -> str | None:
        """Why there are no rows to be looked at; None: there are."""
        who = f"collect() {self._uid!r}"
        if self._outcome is None:
            return (
                f"{who} has no rows yet: run the job {self._job!r} first, as in job.run(); in a test by "
                f"onceflow.testing.run the rows are in its .rows({self._uid!r})"
            )
        if self._lineage is None:
            return (
                f"{who} has no rows: the job {self._job!r} had finished before, in another process, and had "
                "nothing left to do: run it with another checkpoint_dir, or without"
            )
        if self._outcome is not Outcome.FINISHED:
            how = self._outcome.value
            return f"{who} has not all rows: the job {self._job!r} {how} before its input had ended"
        return None

    # --- Called while the job runs: see sinks/collect.py ---

    def begin(self, lineage: str) -> None:
        """See Basket."""
        self._lineage = lineage
        self._outcome, self._batches, self._bytes, self._records = None, [], 0, None

    def has_begun(self, lineage: str) -> bool:
        """See Basket."""
        return self._lineage == lineage

    @property
    def bytes(self) -> int:
        """See Basket."""
        return self._bytes

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """See Basket."""
        self._batches += batches
        self._bytes += sum(batch.nbytes for batch in batches)
        self._records = None

    def on_end(self, outcome: Outcome) -> None:
        """The run has ended so."""
        self._outcome = outcome

    def __getstate__(self) -> dict[str, Any]:
        """What travels to the slots: they collect nothing."""
        return {"_job": self._job, "_uid": self._uid}


def _dicts(batch: pa.RecordBatch) -> list[Any]:
    return batch.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]
