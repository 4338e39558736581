"""Code as it is where there are no kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from onceflow.runtime.kernels.compiled import ENVIRONMENT_VARIABLE, kernels_enabled


@contextmanager
def kernels_off() -> Iterator[None]:
    """What is opened in this process meanwhile has none."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(ENVIRONMENT_VARIABLE, "off")
        kernels_enabled.cache_clear()
        yield
    kernels_enabled.cache_clear()
