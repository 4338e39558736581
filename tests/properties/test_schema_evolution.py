"""Values kept under one type and read under another, against what Avro's rules make of each value.

A pair of types is drawn together with the function that says what a value of the first is in the second.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import Fatal
from onceflow.runtime.state.description import type_text
from onceflow.runtime.state.evolution import conversion
from onceflow.runtime.state.evolution.conversion import converted
from onceflow.runtime.state.evolution.resolution import changes
from onceflow.runtime.state.evolution.type_trees import tree_of, tree_of_text
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.types.columns_of_records import array_from_values
from onceflow.runtime.types.record_types import describe_type
from onceflow.runtime.types.records_of_columns import values_from_array
from onceflow.runtime.types.value_types import FormerName, RecordField

SINGLE: dict[type, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=3),
    bool: st.booleans(),
}
PROMOTIONS: dict[type, tuple[type, Callable[[Any], Any]]] = {
    int: (float, float),
    str: (bytes, lambda text: text.encode()),
}
names = (f"n{i}" for i in itertools.count())


@dataclass
class Evolution:
    """A type, its values, the type that it becomes, and what becomes of a value."""

    was: Any
    values: st.SearchStrategy[Any]
    now: Any
    model: Callable[[Any], Any]

    @classmethod
    def none(cls, of: type) -> Evolution:
        return cls(of, SINGLE[of], of, lambda value: value)


@st.composite
def evolutions(draw: st.DrawFn, depth: int = 3) -> Evolution:
    kinds = ["same", "promoted", *(["list", "dict", "record"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "same":
        return Evolution.none(draw(st.sampled_from(list(SINGLE))))
    if kind == "promoted":
        was = draw(st.sampled_from(list(PROMOTIONS)))
        now, model = PROMOTIONS[was]
        return Evolution(was, SINGLE[was], now, model)
    if kind == "record":
        return draw(records(depth - 1))
    inner = draw(optional(depth - 1))
    if kind == "list":
        lists = st.lists(inner.values, max_size=3)
        return Evolution(list[inner.was], lists, list[inner.now], lambda v: [*map(inner.model, v)])
    dicts = st.dictionaries(st.text(max_size=2), inner.values, max_size=3)
    return Evolution(
        dict[str, inner.was],
        dicts,
        dict[str, inner.now],
        lambda v: {key: inner.model(value) for key, value in v.items()},
    )


@st.composite
def optional(draw: st.DrawFn, depth: int) -> Evolution:
    """The same, or None where it may be; what may not be None may become so."""
    inner = draw(evolutions(depth))
    before, after = draw(st.sampled_from([(False, False), (False, True), (True, True)]))
    values = st.none() | inner.values if before else inner.values
    return Evolution(
        inner.was | None if before else inner.was,
        values,
        inner.now | None if after else inner.now,
        lambda v: None if v is None else inner.model(v),
    )


@st.composite
def records(draw: st.DrawFn, depth: int) -> Evolution:
    was: list[tuple[str, Any]] = []
    now: list[Any] = []
    models: dict[str, tuple[str, Callable[[Any], Any]]] = {}
    values: dict[str, st.SearchStrategy[Any]] = {}
    for _ in range(draw(st.integers(1, 3))):
        field, name = draw(optional(depth)), next(names)
        was.append((name, field.was))
        values[name] = field.values
        fate = draw(st.sampled_from(["stays", "renamed", "gone"]))
        if fate == "stays":
            now.append((name, field.now))
            models[name] = name, field.model
        elif fate == "renamed":
            new = next(names)
            now.append((new, Annotated[field.now, FormerName(next(names), name)]))
            models[new] = name, field.model
    defaults: dict[str, Any] = {}
    for new_of in draw(st.lists(st.sampled_from(["value", "factory", "null"]), max_size=2)):
        new = next(names)
        if new_of == "value":
            defaults[new] = 7
            now.append((new, int, dataclasses.field(default=7, kw_only=True)))
        elif new_of == "factory":
            defaults[new] = ["made"]
            now.append((new, list[str], dataclasses.field(default_factory=lambda: ["made"], kw_only=True)))
        else:
            defaults[new] = None
            now.append((new, str | None))
    now = draw(st.permutations(now))
    old_type, new_type = dataclasses.make_dataclass("Old", was), dataclasses.make_dataclass("New", now)

    def model(value: Any) -> Any:
        kept = {new: of(getattr(value, old)) for new, (old, of) in models.items()}
        return new_type(**kept, **defaults)

    return Evolution(old_type, st.builds(old_type, **values), new_type, model)


@dataclass
class Case:
    evolution: Evolution
    values: list[Any]
    """What was kept; None where a key has nothing."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    evolution = draw(evolutions())
    return Case(evolution, draw(st.lists(st.none() | evolution.values, max_size=6)))


def check(case: Case) -> None:
    was, now = describe_type(case.evolution.was, "was"), describe_type(case.evolution.now, "now")
    kept = array_from_values(case.values, pa.field("state", was.arrow), was)
    assert changes(tree_of(was.arrow), now) == changes(tree_of_text(type_text(was.arrow)), now)
    for array, values in ((kept, case.values), (kept[1:], case.values[1:])):
        read = converted(array, now, "test")
        assert read.type == now.arrow
        read.validate(full=True)
        expected = [None if v is None else case.evolution.model(v) for v in values]
        assert values_from_array(read, now) == expected


@settings(max_examples=300)
@given(cases())
def test_each_value_becomes_what_the_rules_say(case: Case) -> None:
    check(case)


@dataclass
class Old:
    n: int | None
    gone: str


@dataclass
class New:
    renamed: Annotated[float | None, FormerName("n")]
    tags: list[str] = dataclasses.field(default_factory=lambda: ["made"])


OLD_VALUES = [Old(1, "a"), None, Old(None, "b"), Old(3, "")]
OLD = Evolution(
    Old, st.nothing(), New, lambda value: New(None if value.n is None else float(value.n), ["made"])
)
KEYED = Evolution(
    dict[str, Old], st.nothing(), dict[str, New], lambda v: {key: OLD.model(old) for key, old in v.items()}
)


LISTED = Evolution(list[Old], st.nothing(), list[New], lambda v: [*map(OLD.model, v)])
EXAMPLES = [
    Case(OLD, OLD_VALUES),
    Case(KEYED, [{"a": Old(1, "x"), "b": Old(None, "y")}, None, {}]),
    Case(LISTED, [[], [Old(5, "a"), Old(None, "b")], None, [Old(6, "c")]]),
]


def check_all(cases: list[Case]) -> None:
    for case in cases:
        check(case)


@pytest.mark.parametrize("case", EXAMPLES)
def test_examples_of_each_rule(case: Case) -> None:
    check(case)


def ignoring_former_names(field: RecordField, kept: Any) -> str | None:
    return field.name if field.name in kept else None


def without_mask(array: Any, now: Any, fields: Any) -> pa.Array:
    struct = REAL_STRUCT(array, now, fields)
    return pa.StructArray.from_arrays(struct.flatten(), fields=list(now.arrow))


def packed(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Lists that are null count for nothing, so that those behind them take their items."""
    return REAL_FLAT(array.drop_null())


REAL_STRUCT, REAL_FLAT = conversion._struct, conversion._flat
MUTANTS = [
    Mutant("former names are not looked at", [(conversion, "kept_name", ignoring_former_names)]),
    Mutant("what is not there becomes a record of defaults", [(conversion, "_struct", without_mask)]),
    Mutant("lists that are null are left out", [(conversion, "_flat", packed)]),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutants_die(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        check_all(EXAMPLES)


def test_a_value_that_the_new_type_does_not_have_ends_the_start() -> None:
    for was, now, value in ((int, float, 2**53 + 1), (bytes, str, b"\xff")):
        kept, declared = describe_type(was, "was"), describe_type(now, "now")
        array = array_from_values([value], pa.field("state", kept.arrow), kept)
        with pytest.raises(Fatal, match="state 'n': a value in the checkpoint can't be read"):
            converted(array, declared, "state 'n'")


def test_a_null_in_a_map_that_may_have_none_ends_the_start() -> None:
    kept, declared = describe_type(dict[str, int | None], "was"), describe_type(dict[str, int], "now")
    array = array_from_values([{"a": None}], pa.field("state", kept.arrow), kept)
    with pytest.raises(Fatal, match="a value in it is null, and none may be"):
        converted(array, declared, "state 'n'")
