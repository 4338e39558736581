"""LiveQuestions: to the slots that own the keys and back, and what is said when they can't answer."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.control.live_messages import AskRows, AskState, RowsOfKeys, StateNow
from onceflow.runtime.control.message import Message
from onceflow.runtime.driver.live_questions import PATIENCE_MS, UNDER_WAY_MAX, LiveQuestions
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state_tables.live import slots_of
from tests.unit.slot.test_group import ATTEMPT, Driver
from tests.unit.state_tables.test_live import STATES

GROUPS = 16
USERS = ["ann", "bob", "cy", "dan", "eve"]


class Asking:
    """Questions to two slots, on peers 10 and 11, and what went where."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Message]] = []
        self.slots = Driver()
        self.slots.hello(11, partition=1)
        self.slots.hello(10, partition=0)
        self.slots.sent.clear()
        graph: Any = SimpleNamespace(states=lambda: STATES, max_parallelism=GROUPS)
        self.questions = LiveQuestions(graph, lambda peer, message: self.answers.append((peer, message)))

    def ask(self, peer: int = 7, phase: str = "running", **changed: Any) -> None:
        asked = AskState(**{"operator": "totals", "state": "n", "keys": USERS, **changed})
        self.questions.ask(peer, asked, self.slots.group, phase, 0.0)

    @property
    def asked(self) -> dict[int, AskRows]:
        """What each slot was asked last."""
        sent = [(peer, message) for peer, message in self.slots.sent if isinstance(message, AskRows)]
        return {peer - 10: message for peer, message in sent}

    def reply(self, slot: int, rows: bytes = b"", attempt: int = ATTEMPT, problem: str = "") -> None:
        question = self.asked[slot].question
        self.questions.on_rows(RowsOfKeys(attempt, slot, question, rows, problem), 41)

    @property
    def last(self) -> StateNow:
        message = self.answers[-1][1]
        assert isinstance(message, StateNow)
        return message


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_each_slot_is_asked_for_its_own_keys_and_all_have_to_answer(asking: Asking) -> None:
    asking.ask()
    table = pa.table({"user": USERS})
    owners = slots_of(hash_keys(table.to_batches()[0], ["user"]), GROUPS, 2)
    assert len(owners) == 2
    for slot, places in owners.items():
        asked = asking.asked[slot]
        assert (asked.uid, asked.state, asked.described) == ("totals", "n", STATES["totals"])
        assert pa.ipc.open_stream(asked.keys).read_all().column("user").to_pylist() == [
            USERS[n] for n in places.tolist()
        ]
    asking.reply(1, b"of slot 1")
    assert asking.answers == []
    asking.reply(1, b"again")
    asking.reply(0, b"of another attempt", attempt=ATTEMPT - 1)
    assert asking.answers == []
    asking.reply(0, b"of slot 0")
    assert asking.answers[0][0] == 7
    assert (asking.last.attempt, asking.last.checkpoint_id) == (ATTEMPT, 41)
    assert asking.last.rows == [b"of slot 0", b"of slot 1"]
    assert pa.ipc.open_stream(asking.last.keys).read_all().column("user").to_pylist() == USERS
    asking.reply(0, b"late")
    assert len(asking.answers) == 1


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({"operator": "total"}, "unknown", "did you mean 'totals'"),
        ({"keys": [{"usr": "a"}]}, "wrong", "has no column 'usr'"),
        ({"phase": "restarting"}, "away", r"no slots of the job run just now \(restarting\): ask again"),
    ],
)
def test_what_can_not_be_asked_is_answered_at_once(
    asking: Asking, changed: dict[str, Any], kind: str, said: str
) -> None:
    asking.ask(**changed)
    assert asking.last.kind == kind
    assert re.search(said, asking.last.problem)
    assert asking.asked == {}


def test_a_slot_that_can_not_answer_ends_the_question(asking: Asking) -> None:
    asking.ask()
    asking.reply(0, problem="ask for fewer keys")
    assert asking.last.problem == "slot 0 can't answer: ask for fewer keys"
    asking.reply(1, b"late")
    assert len(asking.answers) == 1


def test_an_attempt_that_ends_takes_its_questions_along(asking: Asking) -> None:
    asking.ask()
    asking.reply(0)
    asking.slots.group.end("it is over")
    asking.questions.look(asking.slots.group, 1.0)
    assert asking.last.kind == "away"
    assert asking.last.problem.startswith(f"attempt {ATTEMPT} ended before slot 1 had answered: ask again")


def test_a_slot_is_not_waited_for_without_an_end(asking: Asking) -> None:
    asking.ask()
    asking.questions.look(asking.slots.group, PATIENCE_MS - 1)
    assert asking.answers == []
    asking.questions.look(asking.slots.group, PATIENCE_MS)
    assert asking.last.problem.startswith("slot 0, 1 has not answered for 10 s: ask again")
    asking.reply(0)
    assert len(asking.answers) == 1


def test_slots_have_so_many_questions_and_no_more(asking: Asking) -> None:
    for _ in range(UNDER_WAY_MAX):
        asking.ask(keys=["ann"])
    assert asking.answers == []
    asking.ask(keys=["ann"])
    assert "16 live questions are under way: ask again" in asking.last.problem
    (slot,) = asking.asked
    asking.reply(slot)
    asking.ask(keys=["ann"])
    assert len(asking.answers) == 2, "one was answered, and so another one is taken"
