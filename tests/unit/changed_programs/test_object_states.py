"""Objects without columns, as state by key of a job: restored on both backends, named in the manifest, and
refused where the program keeps them otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import onceflow
from onceflow import KeyedProcess, ListState, MapState, ValueState
from onceflow.runtime.errors import GraphError
from onceflow.runtime.state.overflow import StateOptions

FIRST = (("ann", 5, 1.5, 1_000), ("bob", 7, 2.5, 2_000))
LATER = (("ann", 1, 0.5, 3_000),)
BACKENDS = [StateOptions(), StateOptions("rocksdb", 16 << 20)]


@dataclass(frozen=True)
class Shown:
    user: str
    kept: str


class Seen:
    """No record type."""

    def __init__(self, amounts: list[int]) -> None:
        self.amounts = amounts


@dataclass
class Tree:
    n: int
    below: list[Tree] = field(default_factory=list)


@dataclass
class Tall:
    n: int
    below: list[Tall] = field(default_factory=list)
    height: int = 0


def remembering(tree: Any = Tree, seen: Any = Seen, codec: Any = "pickle") -> Any:
    class Remember(KeyedProcess[str, Any, Shown]):
        seen_ = ValueState("seen", seen, codec=codec, ttl="1 d")
        trees = ListState("trees", tree, codec="msgspec")
        by_ts = MapState("by_ts", int, tree, codec="msgspec")

        def process(self, row: Any, ctx: Any) -> Any:
            seen_before = self.seen_.get()
            amounts = [] if seen_before is None else seen_before.amounts
            yield Shown(row.user, repr((amounts, self.trees.get(), dict(self.by_ts.items()))))
            self.seen_.set(seen([*amounts, row.amount]))
            self.trees.add(tree(row.amount, [tree(row.ts)]))
            self.by_ts.put(row.ts, tree(row.amount))

    return lambda s: {"out": s.key_by("user").process(Remember(), uid="op")}


@pytest.mark.parametrize("state", BACKENDS, ids=lambda state: state.backend)
def test_objects_are_there_again_and_the_manifest_says_how(folder: Any, state: StateOptions) -> None:
    folder.run(remembering(), *FIRST, state=state)
    run = folder.run(remembering(), *LATER, state=state, slots=2)
    kept = repr(([5], [Tree(5, [Tree(1_000)])], {1_000: Tree(5)}))
    assert {"user": "ann", "kept": kept} in run.visible["out"]
    with onceflow.read_state(str(folder.path)) as stored:
        kinds = {table.state: table.kind for table in stored.tables}
        assert (kinds["seen"], kinds["trees"]) == ("value by pickle", "list by msgspec")
        assert {type(row["value"]) for row in stored.table("op", "seen").read().to_pylist()} == {bytes}


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (remembering(Tall), "by_ts=map(msgspec of Tree of the form"),
        (remembering(Tree, Tree, "msgspec"), "seen=value(pickle of Seen)"),
    ],
)
def test_what_is_kept_otherwise_is_refused(folder: Any, after: Any, said: str) -> None:
    folder.run(remembering(), *FIRST)
    run = folder.run(after, *LATER)
    assert run.result.is_refused
    assert said in str(run.result.reason)


def test_what_can_not_be_meant_is_said_at_once() -> None:
    with pytest.raises(GraphError, match=r'msgspec does not take Seen .*codec="pickle"'):
        ValueState("s", Seen, codec="msgspec")
    with pytest.raises(GraphError, match='use "columns", "msgspec" or "pickle"'):
        MapState("s", str, Seen, codec="json")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="state 's'"):
        ListState("s", Seen)
