"""PromisedBatches: which attempt at a batch counts, decided once, in the checkpoint folder.

    onceflow/batch-N.json   the committables of the attempt at batch N that counts
    onceflow/attempt-A      an attempt that has begun to commit, by its number
    onceflow/done.json      the last batch that was committed, and what the sink's ledger said then

The committing process of the driver uses it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from onceflow.runtime.contracts import Committable
from onceflow.runtime.errors import DataLossError, Indeterminate
from onceflow.structured_streaming.staging import Folder

_BATCH, _END = "batch-", ".json"
_DONE = "done.json"
_ATTEMPT = "attempt-"
_ATTEMPTS_OF_A_BATCH = 1_000_000


def first_attempt(batch_id: int) -> int:
    """The attempt that the tasks of a batch write for: a lower number than those of all who commit it."""
    return (batch_id + 1) * _ATTEMPTS_OF_A_BATCH


@dataclass(frozen=True, slots=True)
class Done:
    """A batch that is committed, and the ledger's answer: lower than the batch's, if it had no rows."""

    batch_id: int
    ledger: int


class PromisedBatches:
    """The promises of one query. Nothing is committed before it is promised, and what is promised is all
    that is ever committed of its batch."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def promise(self, batch_id: int, committables: Sequence[Committable]) -> tuple[list[Committable], bool]:
        """The committables that count for this batch, and whether they are these: those of an earlier attempt
        if it has promised its own. Durable when it returns.

        Raises Retryable, Indeterminate: asked again, it says what has become of it. DataLossError if what
        is there can't be read.
        """
        name = _name(batch_id)
        me = uuid.uuid4().hex
        content = json.dumps({"by": me, "committables": [asdict(each) for each in committables]})
        try:
            if self._folder.put_once(name, content.encode()):
                return list(committables), True
        except Indeterminate:  # it is there, or it is not: reading tells
            pass
        found = self._folder.read(name)
        if found is None:
            raise Indeterminate(f"can't tell whether {self._folder.url}/{name} was written")
        try:
            promise = json.loads(found)
            return [Committable(**each) for each in promise["committables"]], promise["by"] == me
        except (ValueError, TypeError, KeyError) as error:
            raise DataLossError(
                f"{self._folder.url}/{name} can't be read, which says what was promised of batch {batch_id}: "
                "restore it, or look whether the batch's rows are in the output, and delete the file if none "
                "is there"
            ) from error

    def new_attempt(self, batch_id: int) -> int:
        """A number for who is about to commit this batch: nobody else ever gets it, and it is higher than
        those that were given for this batch and for those before it. By it a system tells who came last."""
        attempt = max([first_attempt(batch_id), *self._attempts(batch_id)])
        while True:
            attempt += 1
            try:
                if self._folder.put_once(f"{_ATTEMPT}{attempt}", b"1"):
                    return attempt
            except Indeterminate:  # it is there, or it is not: nobody uses it
                continue

    def has(self, batch_id: int) -> bool:
        """Whether an attempt at this batch was promised."""
        return self._folder.read(_name(batch_id)) is not None

    def last_done(self) -> Done | None:
        """The latest batch that was committed; None: none was."""
        found = self._folder.read(_DONE)
        return None if found is None else Done(**json.loads(found))

    def done(self, batch_id: int, ledger: int) -> None:
        """This batch is committed, and the ledger says so: forget those before it. Its own promise stays
        until the next is done, since Spark may not know yet."""
        self._folder.put(_DONE, json.dumps(asdict(Done(batch_id, ledger))).encode())
        for name in self._folder.names():
            number = name.removeprefix(_BATCH).removesuffix(_END)
            if number.isdigit() and name == _name(int(number)) and int(number) < batch_id:
                self._folder.delete(name)
        for attempt in self._attempts(None):
            if attempt < first_attempt(batch_id):
                self._folder.delete(f"{_ATTEMPT}{attempt}")

    def _attempts(self, batch_id: int | None) -> list[int]:
        """The attempts at a batch that have begun; None: at any batch."""
        numbers = [name.removeprefix(_ATTEMPT) for name in self._folder.names() if name.startswith(_ATTEMPT)]
        found = [int(number) for number in numbers if number.isdigit()]
        first = 0 if batch_id is None else first_attempt(batch_id)
        last = max(found, default=0) if batch_id is None else first_attempt(batch_id + 1)
        return [attempt for attempt in found if first <= attempt <= last]


def _name(batch_id: int) -> str:
    return f"{_BATCH}{batch_id}{_END}"
