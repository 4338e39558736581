"""A list without a key: what it takes, how it says what it is, and how lists are dealt out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.state.operator_lists import OperatorListState, UnionListState


@dataclass
class Point:
    x: int


class Plain:
    pass


@given(st.lists(st.lists(st.integers()), min_size=1, max_size=6), st.integers(1, 6))
def test_each_element_is_dealt_to_one_and_evenly(lists: list[list[int]], parallelism: int) -> None:
    state = OperatorListState("kept", int)
    dealt = [state.dealt(lists, n, parallelism) for n in range(parallelism)]
    assert [value for each in dealt for value in each] == [value for each in lists for value in each]
    if len(lists) == parallelism:
        assert dealt == lists
    else:
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


@pytest.mark.parametrize("codec", ["columns", "msgspec", "pickle"])
def test_what_is_frozen_is_loaded(codec: Any) -> None:
    state = UnionListState("kept", Point, codec=codec)
    ones = [state.bind() for _ in range(2)]
    for n, one in enumerate(ones):
        one.add(Point(n))
        one.update([*one.get(), Point(7)])
    frozen = [one.frozen() for one in ones]
    ones[0].get()[0].x = 99
    again = state.bind()
    again.load([frozen[0], None, frozen[1]], 1, 2)
    assert again.get() == [Point(0), Point(7), Point(1), Point(7)]
    assert len(again) == 4
    assert again
    again.clear()
    assert again.get() == []
    assert again.frozen().to_pylist() in ([[]], [None])


def test_how_it_is_described() -> None:
    parts = [OperatorListState("a", Point).part, UnionListState("b", Point, codec="pickle").part]
    assert [(p.kind, p.type, p.codec, p.function) for p in parts] == [
        ("split list", "list<struct<x: int64 not null> not null>", "", ""),
        ("union list", "list<binary not null>", "pickle", "Point"),
    ]
    packed = OperatorListState("c", Point, codec="msgspec").part
    assert packed.codec == "msgspec"
    assert packed.function.startswith("Point of the form ")


def test_what_it_does_not_take() -> None:
    with pytest.raises(UserFunctionError, match="'kept' is there only inside a running job"):
        OperatorListState("kept", int).get()
    bound = OperatorListState("kept", int).bind()
    with pytest.raises(TypeError, match="is declared int but is set to 'a'"):
        bound.add("a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'kept' is declared Point but gets 3"):
        OperatorListState("kept", Point, codec="pickle").bind().add(3)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match='or keep it as bytes: codec="msgspec", or codec="pickle"'):
        OperatorListState("kept", Plain)
