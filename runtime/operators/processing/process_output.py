"""ProcessOutput: what the user's functions of a KeyedProcess yield, as records on its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.declared import SideOutput
from onceflow.runtime.operators.operator import MAIN, Output
from onceflow.runtime.records import Records
from onceflow.runtime.types.columns_of_records import RecordWriter, WrongFieldError

Sent = dict[str, tuple[list[Any], list[int | None]]]
"""Records to side outputs and their event times, by the output's name."""


class Made:
    """Records that the user's functions gave, and from which call each came."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self._ends: list[int] = []
        self._rows: list[int] = []
        self._times: list[int | None] = []

    def add(self, results: Any, row: int, event_time: int | None) -> None:
        before = len(self.records)
        self.records.extend(results)
        if len(self.records) != before:
            self._ends.append(len(self.records))
            self._rows.append(row)
            self._times.append(event_time)

    def undo(self) -> None:
        """Take back what `add` took before an iterator that it went through raised."""
        del self.records[self._ends[-1] if self._ends else 0 :]

    def event_times(self) -> list[int | None]:
        counts = np.diff(self._ends, prepend=0).tolist()
        return [time for time, count in zip(self._times, counts, strict=True) for _ in range(count)]

    def row_of(self, record: int) -> int:
        """The row from which the record at this place came."""
        return self._rows[int(np.searchsorted(self._ends, record, side="right"))]


class ProcessOutput:
    """The outputs of one subtask of a KeyedProcess."""

    def __init__(
        self,
        who: str,
        made: RecordWriter,
        sides: Mapping[str, SideOutput[Any]],
        has_event_time: bool,
        out: Output,
    ) -> None:
        """`who`: operator and class, for errors. `made`: of the main output."""
        self._who = who
        self._made = made
        self._sides = sides
        self.has_event_time = has_event_time
        self._out = out

    def send(self, made: Made, sent: Sent, describe: Callable[[int], str]) -> None:
        """Emit what was yielded, and what was sent to side outputs, which is empty afterwards. `describe`
        says what the call of this number was for. Raises UserFunctionError for a record of a wrong type."""
        if made.records:
            times = made.event_times()
            self._emit(MAIN, self._made, made.records, times, lambda n: describe(made.row_of(n)))
        for name, (records, times) in sent.items():
            if records:
                place = f"side output {name!r}"
                self._emit(name, self._sides[name].writer, records, times, partial(_constant, place))
                sent[name] = ([], [])

    def _emit(
        self,
        tag: str,
        writer: RecordWriter,
        records: list[Any],
        times: list[int | None],
        describe: Callable[[int], str],
    ) -> None:
        try:
            batch = writer.write(records)
        except WrongFieldError as error:
            raise UserFunctionError(
                f"{self._who} made a wrong record for {describe(error.row)}: {error}"
            ) from error
        event_time = np.array(times, np.int64) if self.has_event_time else None
        self._out.emit(Records(batch, event_time), tag)


def _constant(place: str, _: int) -> str:
    return place
