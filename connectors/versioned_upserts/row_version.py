"""The version under which a row is written: what was decided later has the higher one. Pure."""

from __future__ import annotations

from onceflow.runtime.errors import Fatal

CHECKPOINT_BITS = 32
GENERATION_MAX = (1 << (63 - CHECKPOINT_BITS)) - 1
"""Stores take signed 64-bit numbers: two thousand million generations, of twice as many checkpoints each. A
micro-batch of Spark is a generation, a checkpoint of ours is a checkpoint."""


def version_of(generation: int, checkpoint_id: int) -> int:
    """The generation, and below it the checkpoint. Each attempt of a job has a generation that is higher than
    all before it at the same place, so that it also wins after a rewind and in a new checkpoint folder.
    Raises Fatal when the numbers are used up."""
    if not 0 < generation <= GENERATION_MAX or not 0 <= checkpoint_id < 1 << CHECKPOINT_BITS:
        raise Fatal(
            f"generation {generation}, checkpoint {checkpoint_id} can't be a version of 63 bits: write "
            "into a new index or table"
        )
    return generation << CHECKPOINT_BITS | checkpoint_id
