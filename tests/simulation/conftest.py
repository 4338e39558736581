"""What the simulations share: a garbage collector that looks less often."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from onceflow.runtime.testing.simulate import GARBAGE_OBJECTS


@pytest.fixture(scope="package", autouse=True)
def few_collections() -> Iterator[None]:
    """Worlds are cyclic and small: looking for dead ones less often saves a twentieth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(GARBAGE_OBJECTS)
    yield
    gc.set_threshold(*before)
