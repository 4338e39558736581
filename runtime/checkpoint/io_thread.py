"""CheckpointIOThread: the driver's thread for whatever may block for seconds."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.driver import CheckpointIO, IoEffect
from onceflow.runtime.checkpoint.events import Event


class CheckpointIOThread:
    """A CheckpointIO on a thread of its own; `post` gets the answers, on that thread."""

    def __init__(self, io: CheckpointIO, post: Callable[[Event], None]) -> None:
        self._io = io
        self._post = post
        self._effects: queue.Queue[IoEffect | None] = queue.Queue(maxsize=1_024)
        self._thread = threading.Thread(target=self._run, name="checkpoint-io", daemon=True)
        self._thread.start()

    def submit(self, effect: IoEffect) -> None:
        """Do it after all that were submitted before."""
        self._effects.put(effect)

    def close(self, timeout_s: float = 10.0) -> None:
        """Finish what was submitted, then end."""
        self._effects.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (effect := self._effects.get()) is not None:
            try:
                answer = self._io.execute(effect)
            except Exception as error:
                # A fault of ours or of a connector: the coordinator has to hear of it, or it would wait.
                answer = _answer_to_fault(effect, f"{type(error).__name__}: {error}")
            if answer is not None:
                self._post(answer)


def _answer_to_fault(effect: IoEffect, reason: str) -> Event | None:
    match effect:
        case ev.OpenAttempt():
            return ev.OpenFailed(reason, is_fatal=True)
        case ev.Persist(manifest):
            return ev.PersistUnknown(manifest.attempt, manifest.checkpoint_id, reason)
        case ev.CommitSinks(manifest):
            return ev.AttemptFailed(manifest.attempt, reason, fingerprints=frozenset({reason}))
        case ev.MarkFinished(attempt):
            return ev.FinishMarked(attempt)
        case ev.Rescale() | ev.Subsume() | ev.Discard():
            return None
