"""Objects as bytes: through msgspec, checked; through pickle, as objects of the program's class."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import pytest

from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.state.object_codecs import decoded, encoded, object_codec


@dataclass
class Tree:
    """What is said of it does not count."""

    description: str
    title: int
    below: list[Tree] = field(default_factory=list)


class Plain:
    def __init__(self, n: Any) -> None:
        self.n = n


TREE = Tree("a", 1, [Tree("b", 2)])


def test_objects_come_back() -> None:
    packed = object_codec("msgspec", Tree, "s")
    assert decoded(packed, "s", encoded(packed, "s", [TREE])) == [TREE]
    pickled = object_codec("pickle", Plain, "s")
    (plain,) = decoded(pickled, "s", encoded(pickled, "s", [Plain(TREE)]))
    assert (type(plain), plain.n) == (Plain, TREE)


def test_a_class_that_can_not_be_imported_is_the_declared_one() -> None:
    class Local(Plain):
        pass

    codec = object_codec("pickle", Local, "s")
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(Local(1))
    (again,) = decoded(codec, "s", encoded(codec, "s", [Local([Local(2)])]))
    assert (type(again), type(again.n[0]), again.n[0].n) == (Local, Local, 2)


def test_the_title_says_whether_the_form_has_changed() -> None:
    title = object_codec("msgspec", Tree, "s").title
    other = make_dataclass("Tree", [("description", str), ("title", int), ("below", list[Tree])])
    shorter = make_dataclass("Tree", [("title", int), ("below", list[Tree])])
    other.__doc__ = "Said otherwise."
    titles = [object_codec("msgspec", of, "s").title for of in (Tree, other, shorter)]
    assert titles[0] == title
    assert len(set(titles)) == 3, "a default and a field make a difference"


def test_what_a_codec_does_not_take_is_said() -> None:
    with pytest.raises(GraphError, match=r'msgspec does not take Plain .*codec="pickle"'):
        object_codec("msgspec", Plain, "s")
    with pytest.raises(GraphError, match=r'codec=.json.: use "columns", "msgspec" or "pickle"'):
        object_codec("json", Plain, "s")
    packed, pickled = object_codec("msgspec", Tree, "s"), object_codec("pickle", Plain, "s")
    with pytest.raises(UserFunctionError, match="state 's': msgspec can't keep a value"):
        encoded(packed, "s", [Tree(3, "x")])  # type: ignore[arg-type]
    with pytest.raises(UserFunctionError, match="state 's': pickle can't keep a value"):
        encoded(pickled, "s", [Plain(lambda: 0)])
    with pytest.raises(UserFunctionError, match="state 's': msgspec can't read a value of the checkpoint"):
        decoded(packed, "s", [b"\xc1"])
