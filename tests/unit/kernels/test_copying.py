"""What copy_short reads and writes."""

from __future__ import annotations

import numpy as np
import pytest

from onceflow.runtime.kernels.ops import ops

if not ops().are_compiled:
    pytest.skip("needs numba", allow_module_level=True)

from onceflow.runtime.kernels.blocks import BLOCK
from onceflow.runtime.kernels.copying import copy_short


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 200])
@pytest.mark.parametrize("behind", [0, 1, BLOCK - 1, BLOCK, 300])
def test_the_bytes_are_copied_and_no_more_than_a_block_is_overwritten(count: int, behind: int) -> None:
    source = np.random.default_rng(1).integers(1, 255, 300 + count + behind, np.uint8)
    target = np.zeros(600, np.uint8)
    start = source.ctypes.data
    copy_short(target.ctypes.data + 100, start + 300, count, start + 300 + count + behind)
    assert (target[100 : 100 + count] == source[300 : 300 + count]).all()
    assert not target[:100].any()
    assert not target[100 + max(count, BLOCK) :].any()
    if count + behind < BLOCK:
        assert not target[100 + count :].any(), "what lies behind the end was not read"
