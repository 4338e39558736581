"""BackEdge: the way from the end of a loop to its head, within a slot; and what of it a checkpoint holds.

A loop has a head, where its input and the rows that come round meet, a body, and a tail, which sends rows
back. Subtask i of the tail sends to subtask i of the head, which is in the same slot: so the way back is a
queue of this process, no channel. It has no bound: a tail that waited for room at the head, whose own rows
wait for room in the body, would wait for ever. Where state may go to disk, so may what waits (row_queue.py).

A barrier does not go round. When it is at the head, what is in the queue has been computed from rows before
it; so has what the tail sends until the barrier has come through the body to the tail. All of that is in
flight at the barrier, and is logged: it is the state of the tail (Carbone et al., "Lightweight Asynchronous
Snapshots for Distributed Dataflows", 2015, section 4.3, which gives it to the head).
"""

from __future__ import annotations

from collections.abc import Callable

from onceflow.runtime.operators.iteration.row_queue import RowQueue, Waiting
from onceflow.runtime.records import LoopToken, Records


class BackEdge:
    """One subtask's queue, shared by the head and the tail. One thread calls it."""

    def __init__(self) -> None:
        self._queue = RowQueue()
        self._log: list[Waiting] = []
        self._logged_id: int | None = None
        """The checkpoint whose barrier has left the head and has not come to the tail."""
        self.is_over = False
        """The head has found the loop empty, and let the end of its input go: nothing may come any more."""
        self.returned: LoopToken | None = None
        """The token that came through the body last, until the head has taken it."""

    def __len__(self) -> int:
        """The batches that wait for the head."""
        return len(self._queue)

    def send(self, records: Records) -> None:
        """The tail: these go round once more."""
        waiting = self._queue.append(records)
        if self._logged_id is not None:
            self._log.append(waiting)

    def keep_in_memory(self, bytes_max: Callable[[], int] | None) -> None:
        """Keep so many bytes of what waits in memory, and the rest in files; None: all."""
        self._queue.bytes_max = bytes_max

    def take(self, rows_max: int) -> Records | None:
        """The head: about so many of the rows that have waited longest, or None if none waits."""
        return self._queue.take(rows_max)

    def begin_log(self, checkpoint_id: int) -> None:
        """The barrier is at the head. An earlier one that never came to the tail has been given up."""
        self._logged_id = checkpoint_id
        self._log = list(self._queue)

    def logs(self, checkpoint_id: int) -> bool:
        """Whether the barrier has left the head and has not come to the tail."""
        return self._logged_id == checkpoint_id

    def end_log(self, checkpoint_id: int) -> list[Waiting]:
        """The barrier is at the tail: what was in flight at it. [] of a checkpoint that has been given up."""
        if checkpoint_id != self._logged_id:
            return []
        log, self._log, self._logged_id = self._log, [], None
        return log
