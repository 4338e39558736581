"""AwayNotice: that the checkpoint folder is away is said once for each time that it is."""

from __future__ import annotations

from collections.abc import Callable


class AwayNotice:
    """Called by a store (`on_waiting`), on any of its threads; a word too many does no harm."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._is_away = False

    def __call__(self, reason: str) -> None:
        """`reason`: the folder is away; "": it is back."""
        if reason and not self._is_away:
            self._warn(reason)
        self._is_away = bool(reason)
