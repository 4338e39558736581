"""Versions are as high as they are late."""

from __future__ import annotations

import pytest

from onceflow.connectors.versioned_upserts.row_version import CHECKPOINT_BITS, GENERATION_MAX, version_of
from onceflow.runtime.errors import Fatal


def test_a_later_generation_is_higher_than_any_checkpoint_of_an_earlier_one() -> None:
    last = (1 << CHECKPOINT_BITS) - 1
    assert version_of(1, 7) < version_of(1, 8) < version_of(1, last) < version_of(2, 0)
    assert version_of(GENERATION_MAX, last) == (1 << 63) - 1


@pytest.mark.parametrize(("generation", "checkpoint_id"), [(GENERATION_MAX + 1, 1), (1, 1 << 32), (0, 1)])
def test_numbers_that_are_used_up_end_in_a_sentence(generation: int, checkpoint_id: int) -> None:
    with pytest.raises(Fatal, match="can't be a version of 63 bits: write into a new index or table"):
        version_of(generation, checkpoint_id)
