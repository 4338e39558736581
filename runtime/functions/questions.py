"""Questions to functions of the user's that answer later, their answers, and who makes the calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol


class Question(NamedTuple):
    """One call that is to be made. `number` and `attempt` come back with its answer."""

    number: int
    attempt: int
    argument: Any


class Answer(NamedTuple):
    """What a call came to: its result, or what it raised."""

    number: int
    attempt: int
    result: Any
    error: Exception | None


class Calls(Protocol):
    """The calls of one function of one operator subtask. The slot's thread calls all of this."""

    def ask(self, questions: Sequence[Question]) -> None:
        """Begin these calls."""
        ...

    @property
    def has_answers(self) -> bool:
        """Whether `take` has something to give."""
        ...

    def take(self) -> list[Answer]:
        """What has been answered since the last time, in the order in which it was."""
        ...

    def give_up(self, number: int) -> None:
        """Nobody waits for this call any more: end it if that is possible. Its answer may come all the
        same."""
        ...

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call open() or close() of the function's object where the function is called; waits for it. After
        `close` it is the last call of all."""
        ...

    def close(self) -> None:
        """Give up all calls. Waits for a bounded time."""
        ...
