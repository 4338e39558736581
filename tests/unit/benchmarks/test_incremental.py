"""What a checkpoint uploads where little has changed: the goal is 3 % at 1 %, however many came before."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from benchmarks.incremental import Measured
from onceflow.runtime.state.overflow import BackendName, StateOptions
from onceflow.runtime.state.snapshot_options import SnapshotOptions

KEYS, CHECKPOINTS = 100_000, 85
"""One more than a round, in which each row is written again."""


@pytest.mark.parametrize("backend", get_args(BackendName))
def test_one_percent_changed_is_at_most_three_percent_written(backend: BackendName, tmp_path: Path) -> None:
    rng = np.random.default_rng(511)
    memory_bytes = None if backend == "heap" else 16 << 20
    options = StateOptions(backend, memory_bytes, SnapshotOptions(are_incremental=True))
    measured = Measured(options, str(tmp_path))
    measured.push(np.arange(KEYS))
    measured.checkpoint()
    for _ in range(CHECKPOINTS):
        measured.push(rng.choice(KEYS, KEYS // 100, replace=False))
        measured.checkpoint()
    whole, *written = measured.written()
    assert max(written) <= 0.03 * whole
    assert measured.handles[-1].size < 3 * whole, "and a restore reads no more than that"
