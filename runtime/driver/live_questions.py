"""LiveQuestions: what somebody asks of the state of a job that runs, on its way to the slots and back.

A question goes to the slots that own its keys, and is answered when all have answered, by one attempt. None
waits for a slot that is gone or does not answer: who asked hears why, and decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from onceflow.runtime.control.live_messages import AskRows, AskState, RowsOfKeys, StateNow
from onceflow.runtime.control.message import Message
from onceflow.runtime.errors import UsageError
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.records import Indices
from onceflow.runtime.slot.group import SlotGroup
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state_tables.live import as_bytes, keys_of_question, live_shape, slots_of
from onceflow.runtime.state_tables.reader import UnknownTableError

PATIENCE_MS = 10_000.0
"""How long a slot may take: it answers between two batches, and a call of the user's function may last."""
UNDER_WAY_MAX = 16
"""How many questions slots may have to answer at a time."""
WITHOUT = "ask again in a moment, or without --live (live=True) for the last completed checkpoint"


@dataclass(slots=True)
class _Question:
    """One that slots have still to answer."""

    peer: int
    attempt: int
    waits_for: set[int]
    until_ms: float
    keys: bytes
    rows: dict[int, bytes] = field(default_factory=dict)


class LiveQuestions:
    """The questions of one driver. Its thread calls everything."""

    def __init__(
        self,
        graph: JobGraph,
        answer: Callable[[int, Message], object],
    ) -> None:
        """`answer(peer, message)` sends to who has asked."""
        self._states: Mapping[str, StateDescription | None] = graph.states()
        self._max_parallelism = graph.max_parallelism
        self._answer = answer
        self._numbers = itertools.count(1)
        self._under_way: dict[int, _Question] = {}

    def ask(self, peer: int, asked: AskState, group: SlotGroup | None, phase: str, now_ms: float) -> None:
        """Somebody asks. `group`: the slots of the attempt, which can answer if the phase is `running`."""
        try:
            shape = live_shape(self._states, asked.operator, asked.state)
            keys = keys_of_question(shape, asked.keys, asked.are_texts)
        except UsageError as error:
            kind = "unknown" if isinstance(error, UnknownTableError) else "wrong"
            self._refuse(peer, str(error), kind)
            return
        if group is None or group.is_over or not group.slots or phase != "running":
            self._refuse(peer, f"no slots of the job run just now ({phase}): {WITHOUT}")
            return
        if len(self._under_way) >= UNDER_WAY_MAX:
            self._refuse(peer, f"{UNDER_WAY_MAX} live questions are under way: {WITHOUT}")
            return
        described = self._states[asked.operator]
        assert described is not None, "it has this state"
        owners = slots_of(hash_keys(keys, keys.schema.names), self._max_parallelism, len(group.slots))
        number, until_ms = next(self._numbers), now_ms + PATIENCE_MS
        question = _Question(peer, group.attempt, set(owners), until_ms, _picked(keys, None))
        self._under_way[number] = question
        for slot, places in owners.items():
            group.send(slot, AskRows(number, asked.operator, asked.state, described, _picked(keys, places)))

    def on_rows(self, rows: RowsOfKeys, checkpoint_id: int | None) -> None:
        """A slot has answered. `checkpoint_id`: the last one that is completed."""
        question = self._under_way.get(rows.question)
        if question is None or question.attempt != rows.attempt or rows.slot not in question.waits_for:
            return
        if rows.problem:
            self._end(
                rows.question,
                StateNow(problem=f"slot {rows.slot} can't answer: {rows.problem}", kind="wrong"),
            )
            return
        question.waits_for.discard(rows.slot)
        question.rows[rows.slot] = rows.rows
        if not question.waits_for:
            found = [question.rows[slot] for slot in sorted(question.rows)]
            answer = StateNow(question.attempt, checkpoint_id or 0, rows=found, keys=question.keys)
            self._end(rows.question, answer)

    def look(self, group: SlotGroup | None, now_ms: float) -> None:
        """Give up what will not be answered."""
        for number, question in list(self._under_way.items()):
            slots = ", ".join(map(str, sorted(question.waits_for)))
            if group is None or group.is_over or group.attempt != question.attempt:
                said = f"attempt {question.attempt} ended before slot {slots} had answered: {WITHOUT}"
                self._end(number, StateNow(problem=said, kind="away"))
            elif now_ms >= question.until_ms:
                said = f"slot {slots} has not answered for {PATIENCE_MS / 1000:.0f} s: {WITHOUT}"
                self._end(number, StateNow(problem=said, kind="away"))

    def _refuse(self, peer: int, problem: str, kind: str = "away") -> None:
        self._answer(peer, StateNow(problem=problem, kind=kind))

    def _end(self, number: int, answer: StateNow) -> None:
        self._answer(self._under_way.pop(number).peer, answer)


def _picked(keys: pa.RecordBatch, places: Indices | None) -> bytes:
    some = keys if places is None else keys.take(pa.array(places))
    return as_bytes(pa.Table.from_batches([some]))
