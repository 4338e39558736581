"""Pure: whether what was kept under one type can be read as another one, and what becomes of it.

The rules are those of Avro ("Schema Resolution" in its specification), with two that are stricter: a field
that is gone is named, so that whoever starts the job can be asked; and a value that may be null is never read
as one that may not, whatever the values are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onceflow.runtime.state.description import type_text
from onceflow.runtime.state.evolution.members import Fields, fields_of, item_of, kept_name, map_of
from onceflow.runtime.state.evolution.type_trees import (
    Leaf,
    ListTree,
    MapTree,
    Member,
    Struct,
    Tree,
    tree_of,
)
from onceflow.runtime.types.value_types import RecordField, ValueType

_INTEGERS = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_PROMOTIONS: Mapping[str, frozenset[str]] = {
    **{name: frozenset((*_INTEGERS[i + 1 :], "double")) for i, name in enumerate(_INTEGERS)},
    **{
        name: frozenset((*_UNSIGNED[i + 1 :], *_INTEGERS[i + 1 :], "double"))
        for i, name in enumerate(_UNSIGNED)
    },
    "float": frozenset(("double",)),
    "string": frozenset(("large_string", "binary", "large_binary")),
    "binary": frozenset(("large_binary", "string", "large_string")),
}
"""What a type may become. A value that the other one does not have ends the start: an integer beyond 2**53 as
a double, bytes that are no UTF-8 as a string."""
_DECIMAL = re.compile(r"decimal\d+\((\d+), (\d+)\)")


class UnresolvedError(Exception):
    """What was kept can't be read as the type there is now; the message is the rule, without an end."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference that can be read. `text`: what is so now, to be followed by the place it was kept in.
    `is_drop`: something is lost."""

    text: str
    is_drop: bool = False


def changes(was: Tree, now: ValueType) -> list[Change]:
    """How what was kept as `was` is read as `now`, whose own nullability does not count. Empty: both are the
    same. Raises UnresolvedError."""
    return list(_of_types(was, now, ""))


def _of_types(was: Tree, now: ValueType, at: str) -> Iterator[Change]:
    if was == tree_of(now.arrow):
        return
    fields, item, entries = fields_of(now), item_of(now), map_of(now)
    if entries is not None and (kept := _entries(was)) is not None:
        key, value = kept
        if key != tree_of(entries[0].arrow):
            raise UnresolvedError(f"the keys of {at or 'a map'} can't become {type_text(entries[0].arrow)}")
        yield from _of_members(value, entries[1], f"{at}[...]")
    elif fields is not None and isinstance(was, Struct):
        yield from _of_fields(was, fields, at)
    elif item is not None and isinstance(was, ListTree):
        yield from _of_members(was.item, item, f"{at}[]")
    elif isinstance(was, Leaf) and _can_become(was.text, type_text(now.arrow)):
        yield Change(f"{_what(at)} is {type_text(now.arrow)}, and {was.text}")
    else:
        shown = was.text if isinstance(was, Leaf) else "another type"
        raise UnresolvedError(f"{_what(at)} can't be read as {type_text(now.arrow)} where {shown} was kept")


def _of_fields(was: Struct, now: Fields, at: str) -> Iterator[Change]:
    taken = set()
    for field in now.fields:
        path = f"{at}.{field.name}" if at else field.name
        name = kept_name(field, was.fields)
        if name is None:
            yield _added(field, path)
            continue
        taken.add(name)
        if name != field.name:
            yield Change(f"{_what(path)} was called {name!r}")
        yield from _of_members(was.fields[name], field.type, path)
    for name in sorted(was.fields.keys() - taken):
        path = f"{at}.{name}" if at else name
        if not now.may_lose:
            raise UnresolvedError(f"{_what(path)}, of a union or a tuple, is gone")
        yield Change(f"{_what(path)} is gone, with what it was", is_drop=True)


def _of_members(was: Member, now: ValueType, at: str) -> Iterator[Change]:
    if was.nullable and not now.nullable:
        raise UnresolvedError(f"{_what(at)} may not be null, and what is kept may be")
    if now.nullable and not was.nullable:
        yield Change(f"{_what(at)} may be null, which it could not be")
    yield from _of_types(was.type, now, at)


def _added(field: RecordField, path: str) -> Change:
    if field.default is not None:
        return Change(f"{_what(path)} is new, and has its default for what was kept")
    if field.type.nullable:
        return Change(f"{_what(path)} is new, and null for what was kept")
    raise UnresolvedError(
        f"{_what(path)} is new and has no default: give it one, or say by FormerName what it was called"
    )


def _entries(was: Tree) -> tuple[Tree, Member] | None:
    """The type of the keys of a map, and its values; None: it is no map."""
    if isinstance(was, MapTree):
        return was.key, Member(was.value, nullable=False)
    if isinstance(was, ListTree) and isinstance(was.item.type, Struct):
        fields = was.item.type.fields
        if fields.keys() == {"key", "value"}:
            return fields["key"].type, fields["value"]
    return None


def _can_become(was: str, now: str) -> bool:
    if now in _PROMOTIONS.get(was, ()):
        return True
    before, after = _DECIMAL.fullmatch(was), _DECIMAL.fullmatch(now)
    if before is None or after is None:
        return False
    (digits, scale), (more_digits, more_scale) = (tuple(map(int, m.groups())) for m in (before, after))
    return more_scale >= scale and more_digits - more_scale >= digits - scale


def _what(at: str) -> str:
    return f"field {at!r}" if at else "the value"
