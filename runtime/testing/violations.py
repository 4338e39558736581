"""How the guarantee can be broken: what the simulation's checkers tell apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Protocol

from onceflow.runtime.errors import OnceflowError


class Breach(Enum):
    """What is broken. A mutant names those that it is meant for; an error of another kind kills no mutant."""

    LOST = "a row is missing"
    DOUBLED = "a row is there twice"
    WRONG = "a row that no input explains"
    EARLY = "a row is visible before its checkpoint is durable"
    STATE = "state is not that of the records below the offsets"
    PLACE = "a record came to a subtask that does not own its key"
    OFFSETS = "offsets of a checkpoint go back, or some are missing"
    LOG = "the log has an entry that must not be there"
    FILES = "a file that is still needed is deleted, or can't be read"
    STUCK = "the job fails, or comes to no end"


class Violation(AssertionError):
    """The guarantee is broken."""

    def __init__(self, breach: Breach, message: str) -> None:
        super().__init__(message)
        self.breach = breach


class _Runs(Protocol):
    def run(self) -> object: ...


def breaches(worlds: Iterable[_Runs]) -> Iterator[Breach | None]:
    """What each of these runs breaks; None: nothing, or the code has raised an error that it may raise."""
    for world in worlds:
        try:
            world.run()
            yield None
        except Violation as violation:
            yield violation.breach
        except OnceflowError:
            yield None
