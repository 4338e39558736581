"""State without a key of a program that was changed, and what a reader sees of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

import onceflow
from onceflow import FormerName, OperatorListState, UnionListState
from tests.unit.changed_programs.conftest import Folder

FIRST = (("ann", 5, 1.5, 1_000), ("bob", 7, 2.5, 2_000))
KEPT = (("ann", 5.0), ("bob", 7.0))
LATER = (("eve", 1, 0.5, 9_000),)


@dataclass(frozen=True)
class Shown:
    kept: str


@dataclass(frozen=True)
class Bought:
    user: str
    amount: int


@dataclass(frozen=True)
class Bought2:
    name: Annotated[str, FormerName("user")]
    amount: float
    rank: int = 7


@dataclass(frozen=True)
class Model:
    """A record that contains itself, so columns can't have it."""

    users: dict[str, list[int]]
    before: Model | None = None


class Plain:
    def __init__(self, users: list[str]) -> None:
        self.users = users


def keeping(state: Any, make: Callable[[Any], Any]) -> Any:
    class Keep:
        kept = state

        def __call__(self, row: Any) -> Shown:
            shown = Shown(repr([vars(each) for each in self.kept.get()]))
            self.kept.add(make(row))
            return shown

    return lambda s: {"out": s.map(Keep(), uid="keep")}


def bought(row: Any) -> Bought:
    return Bought(row.user, row.amount)


def bought2(row: Any) -> Bought2:
    return Bought2(row.user, row.amount, 0)


def columns(kind: Any, record: Any, name: str = "kept") -> Any:
    return keeping(kind(name, record), {Bought: bought, Bought2: bought2}[record])


def refusal(run: Any) -> str:
    assert run.result.is_refused
    return str(run.result.reason)


def shown(run: Any) -> list[str]:
    return [row["kept"] for row in run.visible["out"]]


def test_a_field_is_renamed_promoted_and_new(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.run(columns(OperatorListState, Bought), *FIRST)
    run = folder.run(columns(OperatorListState, Bought2), *LATER, slots=2)
    assert shown(run)[-1] in [f"[{{'name': '{name}', 'amount': {n}, 'rank': 7}}]" for name, n in KEPT]
    assert {f["change"] for f in run.events.named("state_changed")} == {"evolved"}


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (columns(UnionListState, Bought), r"has kept=split list\(\), the program kept=union list\(\)"),
        (columns(OperatorListState, Bought, "other"), "state 'kept', which the program does not have"),
        (
            keeping(OperatorListState("kept", Bought, codec="msgspec"), bought),
            r"kept=split list\(\) as list<.*the program kept=split list\(msgspec of Bought of the form",
        ),
    ],
)
def test_what_is_another_state_is_refused(after: Any, said: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.run(columns(OperatorListState, Bought), *FIRST)
    assert re.search(said, refusal(folder.run(after, *LATER)))


def packed(of: Any = Model, codec: Any = "msgspec") -> Any:
    make = (lambda row: Model({row.user: [row.amount]})) if of is Model else (lambda row: Plain([row.user]))
    return keeping(OperatorListState("kept", of, codec=codec), make)


@pytest.mark.parametrize(("of", "codec"), [(Model, "msgspec"), (Plain, "pickle")])
def test_objects_without_columns_and_the_manifest_says_how(of: Any, codec: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.run(packed(of, codec), *FIRST)
    run = folder.run(packed(of, codec), *LATER)
    assert "ann" in shown(run)[-1]
    with onceflow.read_state(str(tmp_path)) as state:
        table = state.table("keep", "kept")
        assert table.kind == f"split list by {codec}"
        rows = table.read().to_pylist()
        assert [row["position"] for row in rows] == [0, 1, 2]
        assert {type(row["value"]) for row in rows} == {bytes}
    other = packed(*((Plain, "pickle") if of is Model else (Model, "msgspec")))
    assert f"kept=split list({codec} of {of.__name__}" in refusal(folder.run(other))


def test_a_dataclass_of_another_form_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.run(keeping(OperatorListState("kept", Bought, codec="msgspec"), bought), *FIRST)
    longer = make_dataclass("Bought", [("note", str, "")], bases=(Bought,), frozen=True)
    assert re.search(
        "of the form",
        refusal(folder.run(keeping(OperatorListState("kept", longer, codec="msgspec"), bought))),
    )


def test_lists_as_tables_and_what_has_changed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.run(columns(UnionListState, Bought), *FIRST, slots=2)
    with onceflow.read_state(str(tmp_path)) as state:
        before, table = state.checkpoint_id, state.table("keep", "kept")
        assert (table.kind, table.parts, table.key_columns.names) == ("union list", 2, [])
        assert table.schema.names == ["subtask", "position", "value"]
        values = [row["value"] for row in table.read().to_pylist()]
        assert values == [{"user": "ann", "amount": 5}, {"user": "bob", "amount": 7}]
    folder.run(columns(UnionListState, Bought), *LATER, slots=2, retained=9)
    with onceflow.read_state(str(tmp_path)) as state:
        after = state.checkpoint_id
    changes = onceflow.read_changes(str(tmp_path), before, after, "keep", "kept").to_pylist()
    assert {row["row_kind"] for row in changes} == {"insert"}
    assert {"user": "eve", "amount": 1} in [row["value"] for row in changes]
