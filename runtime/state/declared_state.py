"""State: what all states that a user's class declares for each key have in common."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from onceflow.runtime.state.description import TimeToLive
from onceflow.runtime.state.object_codecs import ObjectCodec
from onceflow.runtime.state.row_values import Codec, Cursor, Outside, RowValues
from onceflow.runtime.state.state_names import check_state_name
from onceflow.runtime.state.ttl import Refresh, Time, time_to_live


class State:
    """What the kinds have in common: a name, a time to live or none, and for the operator `bind`."""

    def __init__(
        self, name: str, codec: Callable[[], Codec], ttl: str | int | None, refresh: Refresh, time: Time
    ) -> None:
        check_state_name(name)
        self.name = name
        self.ttl: TimeToLive | None = time_to_live(name, ttl, refresh, time)
        self.of_rows: RowValues = Outside(codec())
        self.former_names: tuple[str, ...] = ()
        """What it was called in programs before."""
        self.objects: ObjectCodec | None = None
        """How values are kept that are no columns."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            there = sorted(each for each in dir(type(self)) if not each.startswith("_") and each != "bind")
            raise AttributeError(f"a {kind} has no {name!r}: it has {', '.join(there)}", name=name, obj=self)

    def bind(self, cursor: Cursor) -> Self:
        """A fresh state of the same declaration, whose current key is the cursor's. Called by the
        operator."""
        fresh = copy.copy(self)
        fresh.of_rows = RowValues(self.of_rows.codec, cursor)
        return fresh
