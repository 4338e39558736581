"""Types and what they become are drawn (`properties/test_schema_evolution.py`), and so are the values that a
job has kept in each kind of state and in windows. The changed job finds them as Avro's rules say, on both
backends."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.processing.keyed_process import KeyedProcess
from onceflow.runtime.state.handles import ListState, MapState, ValueState
from onceflow.runtime.state.overflow import StateOptions
from onceflow.runtime.testing.mutation import mutated
from onceflow.runtime.types.columns_of_records import array_from_values
from onceflow.runtime.types.record_types import describe_type
from tests.properties.test_schema_evolution import MUTANTS, OLD, OLD_VALUES, Case, evolutions
from tests.unit.changed_programs.test_evolved_types import BACKENDS, Row

ASKED = -1
"""The amount of a row that asks for what is kept."""


@dataclass
class Shown:
    user: str
    kept: str


@st.composite
def cases(draw: st.DrawFn) -> Case:
    evolution = draw(evolutions(depth=2))
    return Case(evolution, draw(st.lists(evolution.values, min_size=1, max_size=4)))


def program(of: Any, values: list[Any]) -> Any:
    """It keeps values of a type, by their numbers, and shows them when it is asked."""

    class Remember(KeyedProcess[str, Row, Shown]):
        last = ValueState("last", of)
        every = ListState("every", of)
        by_name = MapState("by_name", str, of)

        def process(self, row: Row, ctx: Any) -> Any:
            if row.amount == ASKED:
                kept = self.last.get(), [*self.every.get()], [*self.by_name.items()]
                yield Shown(row.user, repr(kept))
                return
            value = values[row.amount]
            self.last.set(value)
            self.every.add(value)
            self.every.add(value)
            self.by_name.put("it", value)

    holder = dataclasses.make_dataclass("Holder", [("user", str), ("kept", of)])

    def held(row: Row) -> Any:
        return holder(row.user, values[row.amount])

    def build(stream: Any) -> Any:
        windows = stream.map(held, returns=holder).key_by("user").window(tumbling("10 s"))
        return {
            "shown": stream.key_by("user").process(Remember(), uid="process"),
            "windows": windows.reduce(earlier, uid="window"),
        }

    return build


def earlier(a: Any, b: Any) -> Any:
    return a


def check(case: Case, folder: Any, state: StateOptions) -> None:
    now, keys = case.evolution.now, range(len(case.values))
    expected = [case.evolution.model(value) for value in case.values]
    folder.run(
        program(case.evolution.was, case.values), *((f"k{n}", n, 0.0, 1_000) for n in keys), state=state
    )
    asked = [(f"k{n}", ASKED, 0.0, 2_000) for n in keys]
    changed = program(now, expected)
    run = folder.run(changed, *asked, ("end", 0, 0.0, 99_000), state=state, slots=2, allow_dropped_state=True)
    assert not run.result.is_refused, run.result.reason
    assert {row["user"]: row["kept"] for row in run.visible["shown"] if row["user"] != "end"} == {
        f"k{n}": repr((value, [value, value], [("it", value)])) for n, value in enumerate(expected)
    }
    declared = describe_type(now, "now")
    columns = array_from_values(expected, pa.field("kept", declared.arrow), declared).to_pylist()
    assert {row["user"]: row["kept"] for row in run.visible["windows"]} == {
        f"k{n}": value for n, value in enumerate(columns)
    }


@pytest.mark.parametrize("state", BACKENDS, ids=lambda state: state.backend)
@pytest.mark.parametrize("examples", [8, pytest.param(200, marks=pytest.mark.soak)])
def test_what_was_kept_is_what_the_rules_make_of_it(
    in_folder: Any, state: StateOptions, examples: int
) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(cases())
    def checked(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check(case, in_folder(Path(folder) / "checkpoints"), state)

    checked()


@pytest.mark.parametrize("state", BACKENDS, ids=lambda state: state.backend)
def test_a_conversion_that_looks_at_no_former_names_dies(
    in_folder: Any, tmp_path: Path, state: StateOptions
) -> None:
    case = Case(OLD, [value for value in OLD_VALUES if value is not None])
    check(case, in_folder(tmp_path / "right"), state)
    with mutated(MUTANTS[0]), pytest.raises(AssertionError):
        check(case, in_folder(tmp_path / "wrong"), state)
