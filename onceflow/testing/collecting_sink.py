"""CollectingSink: keeps the rows of a sink in the test's own memory, committed and not yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from onceflow.runtime.contracts import Committable, PreCommit, SinkContext, SinkWriter
from onceflow.runtime.errors import Fenced
from onceflow.runtime.records import Records


@dataclass(slots=True)
class SinkRows:
    """What came to a sink. It outlives slots and drivers, as a topic does. In order for each subtask."""

    uid: str
    schema: pa.Schema
    committed: list[Records] = field(default_factory=list)
    open: dict[int, list[Records]] = field(default_factory=dict)
    """What the writers of the present attempt have taken and not committed, by subtask."""
    attempt: int = 0
    """Writers of earlier attempts are fenced."""
    staged: dict[str, list[Records]] = field(default_factory=dict)
    """Pre-committed rows by the name of their committable, until they are committed."""
    on_call: Callable[[str], None] = lambda call: None
    """Called before and after each step of a commit: a crash may hit here."""

    @property
    def rows(self) -> list[Records]:
        """All that came and was not undone by a crash: what is committed, then the rest."""
        return [*self.committed, *(records for part in self.open.values() for records in part)]

    def commit(self, name: str, attempt: int) -> None:
        """Make staged rows count, once, however often it is asked."""
        self.on_call("commit")
        if attempt < self.attempt:
            raise Fenced(f"{self.uid}: attempt {attempt} was fenced by {self.attempt}")
        self.committed += self.staged.pop(name, [])
        self.on_call("commit done")


@dataclass(frozen=True)
class CollectingSink:
    """Takes rows, updates and deletes of any schema, exactly once."""

    taken: SinkRows
    takes_kinds: bool = True

    def check(self, schema: pa.Schema, uid: str) -> None:
        pass

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return _Writer(self.taken, context)


class _Writer:
    def __init__(self, taken: SinkRows, context: SinkContext) -> None:
        self._taken = taken
        self._context = context
        if context.attempt > taken.attempt:
            taken.attempt = context.attempt
            taken.open.clear()
        self._rows: list[Records] = []
        if context.attempt == taken.attempt:
            taken.open[context.subtask] = self._rows
        self._frozen: dict[int, tuple[str, int]] = {}
        """The name of a checkpoint's committable, and how many of the rows it has."""

    def recover(self, committables: Sequence[Committable]) -> None:
        for committable in committables:
            self._taken.commit(str(committable.payload["name"]), self._context.attempt)

    def write(self, records: Records) -> None:
        self._rows.append(records)

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        name = f"{self._context.attempt}-{self._context.subtask}-{checkpoint_id}"
        self._frozen[checkpoint_id] = name, len(self._rows)
        return _PreCommit(self._taken, self._context, checkpoint_id, name, list(self._rows))

    def commit(self, checkpoint_id: int) -> None:
        found = self._frozen.pop(checkpoint_id, None)
        self._frozen = {n: frozen for n, frozen in self._frozen.items() if n > checkpoint_id}
        if found is None:
            return
        name, count = found
        self._taken.commit(name, self._context.attempt)
        del self._rows[:count]
        self._frozen = {n: (other, size - count) for n, (other, size) in self._frozen.items()}

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _PreCommit:
    taken: SinkRows
    context: SinkContext
    checkpoint_id: int
    name: str
    rows: list[Records]

    def stage(self) -> Committable:
        self.taken.staged[self.name] = self.rows
        owner = str(self.context.subtask)
        return Committable(self.context.uid, owner, self.checkpoint_id, {"name": self.name})
