"""Lookup: a table somewhere else whose rows are asked for by key while a job runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa


class Lookup(Protocol):
    """What `stream.lookup_join` asks. It may define `open(self, ctx)` and `close(self)`, as function objects
    do: each subtask has an instance of its own, a copy that was made before it is opened."""

    @property
    def keys(self) -> Sequence[str]:
        """The columns by which it is asked, in the order of the key's parts."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows, with the keys among them."""
        ...

    @property
    def keys_at_once(self) -> int:
        """The most keys of one request; 1: it is asked for one at a time."""
        ...

    def look_up(self, keys: Sequence[tuple[Any, ...]]) -> Any:
        """The rows of each of these keys, which differ: a mapping from key to dictionaries by column, in
        which a key without rows may be missing. A coroutine function runs on the event loop of the subtask, a
        blocking one on threads; several at a time. What it raises fails the request: if there were several
        keys in it, each is asked alone then."""
        ...
