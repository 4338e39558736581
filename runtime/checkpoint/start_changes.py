"""StartChanges: what a user changes of a savepoint that a job begins with; recorded in the job's log."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import OptionError

AS_CONFIGURED = "start"
"""Where a source begins that is to begin where the program says, as in a job without a savepoint."""


class StartChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which operators go on under another uid, and which sources begin elsewhere.

    They are asked for at every start, and count at the first one only: what was read and kept since is the
    job's own.
    """

    new_uids: Mapping[str, str] = {}
    """The operators' uids in the program, by those in the savepoint."""
    starts: Mapping[str, Json] = {}
    """The start of a source, by its uid: "start", or what it takes for one, such as "earliest"."""
    other_keys: Mapping[str, str] = {}
    """The function that makes the new keys of an operator's state, by name, and the uid in the program."""

    def __bool__(self) -> bool:
        return bool(self.new_uids or self.starts or self.other_keys)

    def __str__(self) -> str:
        """The options that say this."""
        renamed = [f"--map-uid {old}={new}" for old, new in sorted(self.new_uids.items())]
        rekeyed = [f"--rekey {uid}={function}" for uid, function in sorted(self.other_keys.items())]
        return " ".join([*renamed, *(_reset_text(*each) for each in sorted(self.starts.items())), *rekeyed])


def start_changes(
    map_uid: Iterable[tuple[str, str]],
    reset_offsets: Mapping[str, Any],
    has_savepoint: bool,
    other_keys: Mapping[str, object] | None = None,
) -> StartChanges:
    """What a user gives as `map_uid` (pairs of old and new uid), `reset_offsets`, and what makes other keys,
    whose text is its name. Raises OptionError, also
    if he gives no savepoint with them."""
    new_uids: dict[str, str] = {}
    for old, new in map_uid:
        if old in new_uids:
            raise OptionError(f"--map-uid {old}={new}: {old!r} is mapped to {new_uids[old]!r}: leave one out")
        if new in new_uids.values():
            raise OptionError(f"--map-uid {old}={new}: {new!r} can go on with one state only: leave one out")
        new_uids[old] = new
    starts = {uid: _checked(uid, start) for uid, start in reset_offsets.items()}
    functions = {uid: str(each) for uid, each in (other_keys or {}).items()}
    changes = StartChanges(new_uids, starts, functions)
    if changes and not has_savepoint:
        raise OptionError(
            f"{changes} changes what a job begins with, and this one begins with no savepoint: take one with "
            "`onceflow savepoint`, and give it with --from and a new --checkpoint-dir"
        )
    return changes


def _checked(uid: str, start: Json | dt.datetime) -> Json:
    """Offsets by topic and partition are given as those of splits: {"events": {"0": 17}} as {"events-0": 17}.
    The rest is for the source to judge."""
    if isinstance(start, dt.datetime):
        return f"timestamp:{start.isoformat()}"
    if not isinstance(start, Mapping):
        return start
    flat: dict[str, Json] = {}
    for name, offset in start.items():
        if isinstance(offset, Mapping):
            flat |= {f"{name}-{partition}": each for partition, each in offset.items()}
        else:
            flat[name] = offset
    for name, offset in flat.items():
        if type(offset) is not int or offset < 0:
            raise OptionError(
                f"--reset-offsets {uid}: {offset!r} is no offset of {name}: write them as "
                '{"events": {"0": 17, "1": 5}}'
            )
    return flat


def _reset_text(uid: str, start: Json) -> str:
    return f"--reset-offsets {uid}={start if isinstance(start, str) else msgspec.json.encode(start).decode()}"
