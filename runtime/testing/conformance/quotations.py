"""Which sentence of the contract a check is about: said when the check fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Quotation:
    """A sentence of a docstring. `owner`: the class or the method that has it."""

    owner: Any
    sentence: str

    @property
    def place(self) -> str:
        """Who says it: "SinkWriter.commit in onceflow.runtime.contracts.sink"."""
        return f"{self.owner.__qualname__} in {self.owner.__module__}"

    @property
    def is_there(self) -> bool:
        """Whether the contract really says so."""
        return " ".join(self.sentence.split()) in " ".join((inspect.getdoc(self.owner) or "").split())


_QUOTATIONS: dict[Callable[..., Any], Quotation] = {}


def of(owner: Any, sentence: str) -> Callable[[F], F]:
    """Say of a check which sentence of which docstring it is about."""

    def remember(check: F) -> F:
        _QUOTATIONS[check] = Quotation(owner, sentence)
        return check

    return remember


def quotation(check: Callable[..., Any]) -> Quotation | None:
    """What was said of this check."""
    return _QUOTATIONS.get(check)
