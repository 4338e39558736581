"""Types as trees, from text and from Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.runtime.state.description import type_text
from onceflow.runtime.state.evolution.type_trees import (
    Leaf,
    ListTree,
    MapTree,
    Member,
    Struct,
    tree_of,
    tree_of_text,
)

INT = Leaf("int64")
DECIMAL = pa.decimal128(38, 18)
PLACE = pa.struct([pa.field("lat", pa.float64(), False), ("at", pa.timestamp("ms", "UTC"))])


@pytest.mark.parametrize(
    ("arrow", "tree"),
    [
        (pa.int64(), INT),
        (DECIMAL, Leaf("decimal128(38, 18)")),
        (pa.list_(pa.field("item", pa.int64(), False)), ListTree(Member(INT, nullable=False))),
        (pa.list_(pa.int64()), ListTree(Member(INT, nullable=True))),
        (pa.map_(pa.string(), DECIMAL), MapTree(Leaf("string"), Leaf("decimal128(38, 18)"))),
        (pa.struct([]), Struct({})),
        (
            PLACE,
            Struct(
                {
                    "lat": Member(Leaf("double"), nullable=False),
                    "at": Member(Leaf("timestamp[ms, tz=UTC]"), nullable=True),
                }
            ),
        ),
    ],
)
def test_a_type_and_its_text_are_the_same_tree(arrow: pa.DataType, tree: object) -> None:
    assert tree_of(arrow) == tree_of_text(type_text(arrow)) == tree


def test_types_inside_of_each_other() -> None:
    arrow = pa.list_(pa.field("item", pa.struct([("m", pa.map_(pa.int64(), pa.list_(PLACE)))]), False))
    tree = tree_of(arrow)
    assert isinstance(tree, ListTree)
    assert isinstance(tree.item.type, Struct)
    of_map = tree.item.type.fields["m"].type
    assert of_map == MapTree(INT, ListTree(Member(tree_of(PLACE), nullable=True)))
