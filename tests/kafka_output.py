"""What tests of the Kafka sink's transactions commit, and how they wait."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from onceflow.runtime.errors import OnceflowError


class Output:
    """What a checkpoint holds."""

    def __init__(self, checkpoint_id: int, *batches: pa.RecordBatch) -> None:
        self.checkpoint_id = checkpoint_id
        self._batches = batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._batches)


class NoPatience:
    """Tries again at once, until a deadline; remembers why."""

    def __init__(self, deadline_s: float) -> None:
        self.errors: list[OnceflowError] = []
        self._until = time.monotonic() + deadline_s

    @property
    def waits(self) -> list[str]:
        return [str(error) for error in self.errors]

    def wait(self, error: OnceflowError) -> None:
        self.errors.append(error)
        if time.monotonic() > self._until:
            raise error

    def reset(self) -> None: ...
