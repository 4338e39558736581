"""The switch that runs the job tests on another state backend."""

from __future__ import annotations

from typing import Any

import pytest

from tests.state_backend import VARIABLE, with_backend


def test_the_environment_decides_where_a_test_says_nothing() -> None:
    rocks = {VARIABLE: "rocksdb"}
    assert with_backend(["--retained", "1"], {}) == ["--retained", "1"]
    assert with_backend(["--retained", "1"], rocks)[2:4] == ["--state-backend", "rocksdb"]
    own: list[Any] = [["--state-backend", "heap"], ["--state-memory", "32MB"], ["--incremental"]]
    assert [with_backend(options, rocks) for options in own] == own


def test_a_backend_that_is_none_is_said() -> None:
    with pytest.raises(ValueError, match="ONCEFLOW_TEST_STATE_BACKEND=rocks: use one of heap, rocksdb"):
        with_backend([], {VARIABLE: "rocks"})
