"""Arrow types from their texts in a manifest: the inverse of `state/description.type_text`.

It is asked only where no file says the type: of a state without rows. Fields of a struct come in the order of
their names then, since the text has them so.
"""

from __future__ import annotations

import re

import pyarrow as pa

from onceflow.runtime.state.evolution.type_trees import ListTree, MapTree, Member, Struct, Tree, tree_of_text

_SIMPLE = {"bool": pa.bool_(), "halffloat": pa.float16(), "float": pa.float32(), "double": pa.float64()}
_TIMESTAMP = re.compile(r"timestamp\[(\w+)(?:, tz=([^\]]+))?\]")
_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)")
_UNIT = re.compile(r"(time32|time64|duration)\[(\w+)\]")
_FIXED = re.compile(r"fixed_size_binary\[(\d+)\]")
_DATE = re.compile(r"(date32|date64)\[\w+\]")


def type_of_text(text: str) -> pa.DataType:
    """The type that `type_text` wrote as this. Raises ValueError for what it never writes."""
    return _type(tree_of_text(text))


def _type(tree: Tree) -> pa.DataType:
    if isinstance(tree, Struct):
        return pa.struct([_field(name, member) for name, member in tree.fields.items()])
    if isinstance(tree, ListTree):
        return pa.list_(_field("item", tree.item))
    if isinstance(tree, MapTree):
        return pa.map_(_type(tree.key), _type(tree.value))
    return _SIMPLE[tree.text] if tree.text in _SIMPLE else _scalar(tree.text)


def _field(name: str, member: Member) -> pa.Field:
    return pa.field(name, _type(member.type), member.nullable)


def _scalar(text: str) -> pa.DataType:
    if found := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(found[1], found[2])
    if found := _DECIMAL.fullmatch(text):
        return getattr(pa, f"decimal{found[1]}")(int(found[2]), int(found[3]))
    if found := _UNIT.fullmatch(text):
        return getattr(pa, found[1])(found[2])
    if found := _FIXED.fullmatch(text):
        return pa.binary(int(found[1]))
    if found := _DATE.fullmatch(text):
        return getattr(pa, found[1])()
    return pa.type_for_alias(text)
