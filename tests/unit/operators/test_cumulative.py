"""Cumulative windows by example; against a naive list: properties/test_spans.py."""

import pytest

from onceflow.runtime.errors import OptionError
from onceflow.runtime.operators.assigners.cumulative import Cumulative, cumulative


def test_lengths_are_durations_and_the_size_a_multiple_of_the_step() -> None:
    assert cumulative("1 d", "1 h", offset="2 h") == Cumulative(86_400_000, 3_600_000, 7_200_000)
    assert Cumulative(10, 5).title == "10 ms, cumulative by 5 ms"
    for step in ("7 h", 0):
        with pytest.raises(OptionError, match="has to be a multiple of it"):
            cumulative("1 d", step)
