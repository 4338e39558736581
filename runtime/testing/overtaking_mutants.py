"""Mutants of barriers that overtake: what of the rows in front of a barrier is kept, and where it goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from onceflow.runtime.exchange.input_gate import InputGate
from onceflow.runtime.exchange.overtaken import Overtaken
from onceflow.runtime.records import Barrier, Element, Records
from onceflow.runtime.slot.chain_body import ChainBody
from onceflow.runtime.state.in_flight import InFlightRows
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.testing.mutation import Mutant
from onceflow.runtime.testing.violations import Breach


def _forgotten(self: InputGate) -> Sequence[Sequence[Records]] | None:
    rows = _original_overtaken(self)
    return None if rows is None else [[] for _ in rows]


_original_overtaken = InputGate.overtaken


def _kept_nothing(self: Overtaken, channel: int, records: Records) -> None: ...


def _takes_nothing_that_is_read(self: InputGate, channel: int, rows_max: int) -> Element | None:
    overtaken, self._overtaken = self._overtaken, None
    element = _original_take(self, channel, rows_max)
    self._overtaken = overtaken
    if overtaken is not None and isinstance(element, Barrier):
        overtaken.take(channel, element)
    return element


_original_take = InputGate._take


def _takes_what_is_behind_too(self: Overtaken, channel: int, waiting: Iterable[Element]) -> None:
    for element in waiting:
        if isinstance(element, Records):
            self.by_channel[channel].append(element)
        elif isinstance(element, Barrier):
            _original_one(self, channel, element)


_original_one = Overtaken.take


def _any_barrier_ends_it(self: Overtaken, channel: int, element: Element) -> None:
    if isinstance(element, Barrier):
        self._open.discard(channel)
    else:
        _original_one(self, channel, element)


def _restored_come_last(self: InputGate, rows_max: int) -> Element | None:
    restored, self._restored = self._restored, type(self._restored)()
    element = _original_next(self, rows_max)
    self._restored = restored
    return _original_next(self, rows_max) if element is None and restored else element


_original_next = InputGate._next


def _groups_in_turn(self: InFlightRows) -> pa.RecordBatch:
    columns = _original_columns(self)
    groups = self.key_groups.start + np.arange(columns.num_rows) % len(self.key_groups)
    return columns.set_column(0, columns.schema.field(KEY_GROUP_COLUMN), pa.array(groups.astype(np.uint16)))


_original_columns = InFlightRows._as_columns


def _tail_does_not_wait(self: ChainBody, checkpoint_id: int) -> bool:
    return True


LOST, DOUBLED, WRONG, PLACE = Breach.LOST, Breach.DOUBLED, Breach.WRONG, Breach.PLACE
OVERTAKING_MUTANTS: Sequence[Mutant] = (
    Mutant("what was overtaken is forgotten", [(InputGate, "overtaken", _forgotten)], {LOST}, False),
    Mutant(
        "the rest of a batch that was cut is forgotten", [(Overtaken, "keep", _kept_nothing)], {LOST}, False
    ),
    Mutant(
        "what comes before the barrier does is not kept",
        [(InputGate, "_take", _takes_nothing_that_is_read)],
        {LOST},
        False,
    ),
    Mutant(
        "what is behind the barrier is kept too",
        [(Overtaken, "take_all", _takes_what_is_behind_too)],
        {DOUBLED},
        False,
    ),
    Mutant("an older barrier ends what is kept", [(Overtaken, "take", _any_barrier_ends_it)], {LOST}),
    Mutant(
        "watermarks overtake what was in flight",
        [(InputGate, "_next", _restored_come_last)],
        {WRONG, DOUBLED, LOST, Breach.STATE},
    ),
    Mutant(
        "rows in flight get key groups that are not theirs",
        [(InFlightRows, "_as_columns", _groups_in_turn)],
        {PLACE},
    ),
)
TAIL_DOES_NOT_WAIT = Mutant(
    "the end of a loop takes a barrier before its head",
    [(ChainBody, "may_be_overtaken", _tail_does_not_wait)],
)
