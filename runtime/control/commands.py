"""From what the coordinator wants of all slots to the command that says so."""

from __future__ import annotations

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.control.message import Message
from onceflow.runtime.control.messages import Abort, Commit, Drain, Resume, Trigger

ToAllSlots = ev.Trigger | ev.Resume | ev.Drain | ev.Commit | ev.AbortCheckpoint


def command_of(effect: ToAllSlots) -> Message:
    """The message that every slot of the attempt gets."""
    match effect:
        case ev.Trigger(_, checkpoint_id, is_last):
            return Trigger(checkpoint_id=checkpoint_id, is_last=is_last)
        case ev.Resume(_, checkpoint_id):
            return Resume(checkpoint_id=checkpoint_id)
        case ev.Drain():
            return Drain()
        case ev.Commit(_, checkpoint_id):
            return Commit(checkpoint_id=checkpoint_id)
        case ev.AbortCheckpoint(_, checkpoint_id, _):
            return Abort(checkpoint_id=checkpoint_id)
