"""Names of declared states: what they may be, and what a state was called in programs before."""

from __future__ import annotations

import re
from collections.abc import Iterable

from onceflow.runtime.errors import GraphError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def check_state_name(name: object) -> None:
    """Raises GraphError for what is no name of a state."""
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise GraphError(f"state name {name!r}: use letters, digits, '.', '_' and '-'")


def checked_former_names(name: str, former_names: Iterable[str]) -> tuple[str, ...]:
    """The former names of the state of this name. Raises GraphError for what can't be one."""
    if isinstance(former_names, str):
        raise GraphError(f"state {name!r}: former_names is one text: write ({former_names!r},)")
    names = tuple(former_names)
    for each in names:
        check_state_name(each)
    if name in names or len(set(names)) < len(names):
        raise GraphError(f"state {name!r}: former_names has {name!r} itself, or a name twice: leave it out")
    return names
