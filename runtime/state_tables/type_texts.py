"""Arrow types from their texts in a manifest: the inverse of `state/description.type_text`.

It is asked only where no file says the type: of a state without rows. Fields of a struct come in the order of
their names then, since the text has them so.
"""

from __future__ import annotations

import re

import pyarrow as pa

_NOT_NULL = " not null"
_SIMPLE = {"bool": pa.bool_(), "halffloat": pa.float16(), "float": pa.float32(), "double": pa.float64()}
_TIMESTAMP = re.compile(r"timestamp\[(\w+)(?:, tz=([^\]]+))?\]")
_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)")
_UNIT = re.compile(r"(time32|time64|duration)\[(\w+)\]")
_FIXED = re.compile(r"fixed_size_binary\[(\d+)\]")
_DATE = re.compile(r"(date32|date64)\[\w+\]")


def type_of_text(text: str) -> pa.DataType:
    """The type that `type_text` wrote as this. Raises ValueError for what it never writes."""
    if text.startswith("struct<"):
        return pa.struct([_field(each) for each in _split(_inside(text))])
    if text.startswith("list<"):
        return pa.list_(_nullable("item", _inside(text)))
    if text.startswith("map<"):
        key, item = _split(_inside(text))
        return pa.map_(type_of_text(key), type_of_text(item))
    return _SIMPLE[text] if text in _SIMPLE else _scalar(text)


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


def _field(text: str) -> pa.Field:
    name, _, of = text.partition(": ")
    return _nullable(name, of)


def _nullable(name: str, text: str) -> pa.Field:
    bare = text.removesuffix(_NOT_NULL)
    return pa.field(name, type_of_text(bare), bare == text)


def _inside(text: str) -> str:
    return text[text.index("<") + 1 : -1]


def _split(text: str) -> list[str]:
    """What is between the commas that are in no bracket."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "<([") - (char in ">)]")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]
