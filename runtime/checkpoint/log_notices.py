"""What people should know of a checkpoint log that was read."""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.log_view import LogView


class LogNotices:
    """Says the same once in a run."""

    def __init__(self, where: str) -> None:
        """`where`: the folder, as its user finds it."""
        self._where = where
        self._said: list[ev.Announce] = []

    def of(self, view: LogView) -> Sequence[ev.Announce]:
        """What is new: entries that were read from their copies, and such without a checksum."""
        notices = [
            ev.Announce("damage_healed", {"message": f"{problem}; read from its copy"})
            for _, problem in sorted(view.healed.items())
        ]
        if count := len(view.unchecked):
            message = (
                f"{count} entries of the log in {self._where} are an older onceflow's and have no checksum"
            )
            notices.append(ev.Announce("entries_without_checksum", {"entries": count, "message": message}))
        new = [notice for notice in notices if notice not in self._said]
        self._said += new
        return new
