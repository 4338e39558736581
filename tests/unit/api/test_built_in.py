"""What the package says of where its own connectors are is true."""

from __future__ import annotations

import pytest

from onceflow.runtime.api.built_in import built_in, names


@pytest.mark.parametrize("name", names())
def test_each_place_has_a_function(name: str) -> None:
    assert callable(built_in(name))
