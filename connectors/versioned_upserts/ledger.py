"""The ledger of an owner, in notes that a store keeps: who may write, under which generation, and up to which
checkpoint all is there.

| note                     | says                                    | changed by                            |
| ------------------------ | --------------------------------------- | ------------------------------------- |
| `generations`            | the highest generation at this place    | the first owner of an attempt to come |
| `sink LINEAGE UID`       | the latest attempt, and its generation  | the same                              |
| `owner LINEAGE UID N`    | the latest attempt, and its checkpoint  | a claim, and the end of a commit      |

All owners of an attempt have one generation: after a rescale a key is another owner's, and its rows must be
comparable. Each note is changed only from what it was when it was read, so an overtaken writer changes none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from onceflow.connectors.versioned_upserts.backend import Backend, Note
from onceflow.runtime.errors import Fenced, Retryable

_TRIES = 20


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: an owner of a sink in one attempt of a job, which started from a checkpoint."""

    job: str
    lineage: str
    uid: str
    owner: str
    attempt: int
    restored_checkpoint_id: int


class Ledger:
    """See the module. One thread at a time."""

    def __init__(self, backend: Backend, writer: Writer) -> None:
        self._backend = backend
        self._writer = writer
        self._sink = f"sink {writer.lineage} {writer.uid}"
        self._owner = f"owner {writer.lineage} {writer.uid} {writer.owner}"
        self._note: Note | None = None
        self._sink_note: Note | None = None
        self.generation = 0
        """The attempt's, once it is claimed."""

    @property
    def note(self) -> Note:
        """The owner's, as this attempt has left it."""
        assert self._note is not None, "it is claimed first"
        return self._note

    @property
    def under(self) -> Sequence[Note]:
        """All that a newer attempt changes before it writes: the owner's note, and that of the whole sink,
        for a newer attempt may have no owner of this name."""
        assert self._sink_note is not None, "it is claimed first"
        return (self.note, self._sink_note)

    def claim(self) -> int:
        """Take the ledger, and say which checkpoint is committed. One that is ahead of the checkpoint that
        the attempt starts from is taken back to it: what is written from now on has a higher version. Raises
        Fenced if a newer attempt has it."""
        self.generation = self._generation()
        note, said = self._read(self._owner)
        attempt, checkpoint_id = said.get("attempt", 0), said.get("checkpoint", 0)
        self._compare(attempt)
        if attempt == self._writer.attempt:
            assert note is not None, "an attempt has written it"
            self._note = note
            return checkpoint_id
        checkpoint_id = min(checkpoint_id, self._writer.restored_checkpoint_id)
        self._put_own(checkpoint_id, note)
        return checkpoint_id

    def check(self) -> None:
        """Before rows are written: raises Fenced if a newer attempt has the ledger, Retryable if it is not as
        this attempt has left it."""
        note, said = self._read(self._owner)
        self._compare(said.get("attempt", 0))
        if note is None or note.text != self.note.text:
            raise Retryable(f"the ledger of {self._where} was changed: it is claimed again")

    def advance(self, checkpoint_id: int) -> None:
        """All rows of this checkpoint are there. Raises Retryable if the ledger is not as this attempt has
        left it: a claim says whose it is."""
        self._put_own(checkpoint_id, self.note)

    @property
    def _where(self) -> str:
        return f"sink {self._writer.uid!r}, subtask {self._writer.owner}"

    def _generation(self) -> int:
        """The attempt's: a new one, above all others at this place, if it has none."""
        for _ in range(_TRIES):
            note, said = self._read(self._sink)
            self._compare(said.get("attempt", 0))
            if said.get("attempt") == self._writer.attempt:
                self._sink_note = note
                return said["generation"]
            generation = self._next_generation()
            text = self._text(attempt=self._writer.attempt, generation=generation)
            if generation:
                self._sink_note = self._backend.put_note(self._sink, text, note)
                if self._sink_note is not None:
                    return generation
        raise Retryable(f"the ledger of {self._where} is changed by others all the time")

    def _next_generation(self) -> int:
        """0: somebody else was faster."""
        note, said = self._read("generations")
        generation = max(said.get("highest", 0) + 1, self._backend.generation_first)
        text = json.dumps({"highest": generation})
        return 0 if self._backend.put_note("generations", text, note) is None else generation

    def _put_own(self, checkpoint_id: int, over: Note | None) -> None:
        text = self._text(attempt=self._writer.attempt, checkpoint=checkpoint_id)
        self._note = None
        note = self._backend.put_note(self._owner, text, over)
        if note is None:
            raise Retryable(f"the ledger of {self._where} was changed: it is claimed again")
        self._note = note

    def _compare(self, attempt: int) -> None:
        if attempt > self._writer.attempt:
            raise Fenced(f"a newer attempt writes the output of {self._where}")

    def _read(self, name: str) -> tuple[Note | None, dict[str, int]]:
        note = self._backend.read_note(name)
        return note, ({} if note is None else json.loads(note.text))

    def _text(self, **numbers: int) -> str:
        return json.dumps({**numbers, "job": self._writer.job})
