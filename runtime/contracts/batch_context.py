"""BatchContext: what the user's function of `stream.foreach_batch` is told of its batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchContext:
    """Which batch it is. After a failure a batch may come again: the same rows, with the same `batch_id`, so
    a function that remembers the last `batch_id` of each `subtask` in the place where it writes is exactly
    once."""

    batch_id: str
    """The batch's own name: no other one has it, of no other job."""
    checkpoint_id: int
    """The checkpoint that has these rows. It is durable."""
    subtask: int
    """The subtask that these rows came to; of two batches of one subtask the earlier one comes first."""
    part: int
    """The number of the batch among those of this checkpoint and subtask, from 0."""
    uid: str
    job: str
