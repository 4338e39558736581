"""LookupCache: what has been looked up lately, in bounded number and for a bounded time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any


class LookupCache:
    """The rows of keys, those that were asked for longest ago forgotten first. One thread."""

    def __init__(self, keys_max: int, ttl_ms: float, now_ms: Callable[[], float]) -> None:
        """`ttl_ms`: after it a key is asked for again, counted from when its rows came."""
        self._keys_max = keys_max
        self._ttl_ms = ttl_ms
        self._now_ms = now_ms
        self._rows: OrderedDict[Any, tuple[float, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: Any) -> Any | None:
        """The rows of this key; None: they are not here, or too old."""
        found = self._rows.get(key)
        if found is None:
            return None
        came_ms, rows = found
        if self._now_ms() - came_ms >= self._ttl_ms:
            del self._rows[key]
            return None
        self._rows.move_to_end(key)
        return rows

    def put(self, key: Any, rows: Any) -> None:
        """These have just come."""
        self._rows[key] = (self._now_ms(), rows)
        self._rows.move_to_end(key)
        if len(self._rows) > self._keys_max:
            self._rows.popitem(last=False)
