"""Sending ahead: records go into the open transaction while their checkpoint is still being made.

What a commit has to send then is there already, so that a record waits less for it. Nothing else
changes: what was sent ahead is invisible until the commit, and is aborted if that never comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa


class Output(Protocol):
    """What one owner wrote between two barriers; durable once its checkpoint is."""

    @property
    def checkpoint_id(self) -> int: ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The output's rows (PRODUCE_SCHEMA), as often as asked. Raises CorruptCheckpointError before the
        first."""
        ...


class AheadOutput(Output, Protocol):
    """Output of which a part may be sent before it is durable, while it still grows."""

    @property
    def batch_count(self) -> int: ...

    def in_memory_from(self, start: int) -> Sequence[pa.RecordBatch]:
        """The output's batches from this number on, in the order of `batches`; empty if the first of them is
        not in memory."""
        ...

    def batches_from(self, start: int) -> Iterator[pa.RecordBatch]:
        """The rest of `batches`; reads nothing if there is none."""
        ...


class SentAhead:
    """The batches that were sent into the open transaction: of each output the first ones."""

    def __init__(self) -> None:
        self.rows = 0
        self._batches: dict[AheadOutput, int] = {}

    def next_of(self, outputs: Sequence[AheadOutput]) -> list[tuple[AheadOutput, pa.RecordBatch]]:
        """What can be sent now. In the order of the outputs, which is that of the rows in a partition: none
        of the second before all of the first."""
        found: list[tuple[AheadOutput, pa.RecordBatch]] = []
        for output in outputs:
            start = self._batches.get(output, 0)
            batches = output.in_memory_from(start)
            found += [(output, batch) for batch in batches]
            if start + len(batches) < output.batch_count:
                break
        return found

    def add(self, output: AheadOutput, batch: pa.RecordBatch) -> None:
        """The output's next batch was handed to the producer."""
        self.rows += batch.num_rows
        self._batches[output] = self._batches.get(output, 0) + 1

    def is_part_of(self, outputs: Sequence[Output]) -> bool:
        """Whether a transaction with this in it can become the one that commits these outputs."""
        return all(any(output is sent for output in outputs) for sent in self._batches)

    def rest_of(self, output: Output) -> Iterator[pa.RecordBatch]:
        """What the transaction lacks of the output."""
        for sent, batches in self._batches.items():
            if sent is output:
                return sent.batches_from(batches)
        return output.batches()


class AheadThread:
    """Calls `send` after each `wake`, until it returns False; for one writer."""

    def __init__(self, send: Callable[[], bool]) -> None:
        self._send = send
        self.is_sending = False
        """Whether it is at work: with each call of `send` less is left."""
        self._is_closed = False
        self._something = threading.Event()
        threading.Thread(target=self._work, name="kafka-ahead", daemon=True).start()

    def wake(self) -> None:
        """Called when there is something to send."""
        self._something.set()

    def close(self) -> None:
        """Does not wait for a call of `send` that is under way."""
        self._is_closed = True
        self._something.set()

    def _work(self) -> None:
        while True:
            self._something.wait()
            self._something.clear()
            self.is_sending = True
            try:
                while not self._is_closed and self._send():
                    pass
            finally:
                self.is_sending = False
            if self._is_closed:
                return
