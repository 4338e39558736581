"""Pure: what a start from a savepoint makes of each operator, source and sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.savepoints.savepoint import Savepoint
from onceflow.runtime.checkpoint.state_fits import Fit, Program
from onceflow.runtime.contracts import Json
from onceflow.runtime.state.in_flight import is_in_flight

KINDS = ("kept", "evolved", "reset", "new", "dropped")


@dataclass(frozen=True, slots=True)
class StartNotice:
    """What is told of a start from a savepoint. `uids`: of all that keep something, by one of KINDS.
    `max_parallelism`: of the savepoint, and of the program."""

    savepoint_id: str
    job: str
    checkpoint_id: int
    uids: Mapping[str, list[str]]
    max_parallelism: tuple[int, int]

    def fields(self) -> dict[str, Json]:
        """The fields of the event."""
        return {
            "savepoint_id": self.savepoint_id,
            "job": self.job,
            "checkpoint_id": self.checkpoint_id,
            **{kind: self.uids[kind] for kind in KINDS},
            "max_parallelism_before": self.max_parallelism[0],
            "max_parallelism": self.max_parallelism[1],
        }


def start_notice(taken: Savepoint, saved: CheckpointManifest, fit: Fit, program: Program) -> StartNotice:
    """`saved`: what the savepoint has, by the uids that the program knows; `fit`: what becomes of it."""
    has = {h.uid for h in saved.states} | set(saved.splits) | set(saved.finished)
    had = {uid for uid in has if not is_in_flight(uid)}
    reset = {note.uid for note in fit.notes if note.change == "reset"}
    dropped = {note.uid for note in fit.notes if note.change == "dropped" and not is_in_flight(note.uid)}
    gone = {uid for uid in dropped if program.states.get(uid) is None and uid not in program.sources}
    evolved = {
        note.uid for note in fit.notes if note.change in ("added", "widened", "evolved", "ttl", "dropped")
    }
    keepers = {uid for uid, state in program.states.items() if state is not None} | program.sources
    kinds = {
        "kept": (had & keepers) - evolved - reset,
        "evolved": (evolved & had) - gone - reset,
        "reset": reset,
        "new": keepers - had - reset,
        "dropped": gone,
    }
    uids = {kind: sorted(found) for kind, found in kinds.items()}
    was = taken.manifest
    groups = was.max_parallelism, program.max_parallelism
    return StartNotice(taken.savepoint_id, was.job, was.checkpoint_id, uids, groups)
