"""What is said where somebody asks for the state of a job that runs (`driver/live_questions.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceflow.runtime.control.message import Message
from onceflow.runtime.state.description import StateDescription


class AskState(Message):
    """What is known of these keys now, before any checkpoint has it? Answered with StateNow."""

    operator: str
    state: str
    keys: Sequence[Any]
    """Texts, numbers and the like, or an object with a value for each column."""
    are_texts: bool = False
    """They are as a command takes them (`chosen_keys.key_of_text`)."""


class StateNow(Message):
    """The rows of the keys of a question, as they are in slots that run: no checkpoint has them yet."""

    attempt: int = 0
    checkpoint_id: int = 0
    """The last one that was completed, to which a restart would go back; 0: there is none."""
    rows: Sequence[bytes] = ()
    """A table of each slot that was asked, as an Arrow IPC stream."""
    keys: bytes = b""
    """The keys in their order, as an Arrow IPC stream of the key's columns."""
    problem: str = ""
    """Why there is no answer."""
    kind: str = ""
    """What is the matter: "wrong", "unknown" (table), or "away": it may be answered later."""


class AskRows(Message):
    """What does an operator remember of these keys now, all of which are this slot's? Answered with
    RowsOfKeys, between two batches."""

    question: int
    uid: str
    state: str
    described: StateDescription
    """What the operator keeps."""
    keys: bytes
    """The key columns as an Arrow IPC stream."""


class RowsOfKeys(Message):
    """What AskRows asked for: a table as an Arrow IPC stream, or why there is none."""

    attempt: int
    slot: int
    question: int
    rows: bytes = b""
    problem: str = ""
