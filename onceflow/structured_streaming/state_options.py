"""The options of `.format("onceflow-state")`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.state_tables.chosen_keys import key_of_text

KNOWN = ("path", "operator", "state", "checkpoint", "key", "keys", "changes_from", "all_rows")
WRITTEN = ("path", "operator", "state", "key_columns", "kind", "base", "max_parallelism")


@dataclass(frozen=True, slots=True)
class StateOptions:
    """What to read. `operator` None: the list of what there is, or all rows of all tables."""

    path: str
    operator: str | None
    state: str | None
    checkpoint: int | None
    keys: Sequence[Any] | None
    """Texts and JSON values, as they were given."""
    changes_from: int | None = None
    """The checkpoint since which changes are read; None: the rows are read as they are."""
    all_rows: bool = False

    def keys_of(self, columns: Sequence[str]) -> Sequence[Any] | None:
        """The keys, for a table with these key columns."""
        if self.keys is None:
            return None
        return [key_of_text(key, columns) if isinstance(key, str) else key for key in self.keys]


@dataclass(frozen=True, slots=True)
class StateToWrite:
    """What to write, as `onceflow.write_state` takes it."""

    path: str
    operator: str
    state: str
    key_columns: Sequence[str]
    kind: str
    base: str | None
    max_parallelism: int | None


def state_to_write(options: Mapping[str, str]) -> StateToWrite:
    """The options of a write. Raises OptionError."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in WRITTEN:
            near = nearest(name, WRITTEN)
            raise OptionError(f"writing onceflow-state has no option {name!r}{near}; use {WRITTEN}")
    needed = WRITTEN[:4]
    for name in needed:
        if not given.get(name):
            raise OptionError(f"writing onceflow-state needs {name!r}: use all of {', '.join(needed)}")
    columns = [column.strip() for column in given["key_columns"].split(",")]
    groups = given.get("max_parallelism")
    if groups is not None and not (groups.isdecimal() and int(groups)):
        raise OptionError(f"option 'max_parallelism' is {groups!r}: use a number, that of the job")
    return StateToWrite(
        given["path"],
        given["operator"],
        given["state"],
        columns,
        given.get("kind", "value"),
        given.get("base"),
        None if groups is None else int(groups),
    )


def state_options(options: Mapping[str, str]) -> StateOptions:
    """Raises OptionError."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        if name not in KNOWN:
            raise OptionError(f"onceflow-state has no option {name!r}{nearest(name, KNOWN)}; use {KNOWN}")
    if "path" not in given:
        raise OptionError(
            "onceflow-state needs the folder of a job's checkpoints, or of a savepoint: load(path)"
        )
    operator = given.get("operator")
    of_an_operator = ("state", "key", "keys", "changes_from")
    if operator is None and (of_one := [name for name in of_an_operator if name in given]):
        raise OptionError(f"option {of_one[0]!r} is of one operator: use option 'operator' too")
    all_rows = given.get("all_rows", "false").lower()
    if all_rows not in ("true", "false"):
        raise OptionError(f"option 'all_rows' is {given['all_rows']!r}: use true or false")
    if all_rows == "true" and operator is not None:
        raise OptionError(
            "option 'all_rows' reads the rows of all operators: leave 'operator' out, and filter by it"
        )
    keys, since = _keys(given), _checkpoint(given, "changes_from")
    if keys is not None and since is not None:
        raise OptionError("option 'changes_from' reads the changes of all keys: leave 'key' and 'keys' out")
    path, state, checkpoint = given["path"], given.get("state"), _checkpoint(given, "checkpoint")
    return StateOptions(path, operator, state, checkpoint, keys, since, all_rows == "true")


def _checkpoint(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option)
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    raise OptionError(f"option {option!r} is {text!r}: use the id of a checkpoint, a number")


def _keys(given: Mapping[str, str]) -> list[Any] | None:
    if "keys" not in given:
        return [given["key"]] if "key" in given else None
    if "key" in given:
        raise OptionError("give one of 'key' and 'keys': use 'keys' for several")
    try:
        keys = json.loads(given["keys"])
    except ValueError:
        keys = None
    if not isinstance(keys, list):
        raise OptionError(f"option 'keys' is {given['keys']!r}: use a JSON array of keys")
    return keys
