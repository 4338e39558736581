"""`--map-uid`, `--reset-offsets`, `--rekey`: what of a savepoint is otherwise when a job begins with it."""

from __future__ import annotations

import datetime as dt
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from onceflow.runtime.errors import OptionError

_WORDS = ("start", "earliest", "latest")
_FORMS = (
    'write earliest, latest, start (where the program begins), a time such as "2026-01-31T00:00:00Z", or '
    'offsets as JSON or a file of it: {"events": {"0": 17}}'
)

MapUidOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map-uid",
        metavar="OLD=NEW",
        help="With --from: this operator goes on under a new uid; repeatable.",
    ),
]
ResetOffsetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reset-offsets",
        metavar="UID=WHERE",
        help="With --from: this source begins anew, at earliest, latest, start, a time, or offsets "
        "(JSON, or a file of it); repeatable.",
    ),
]

RekeyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rekey",
        metavar="UID=WHAT",
        help="UID=MODULE:KEY[,MERGE], with --from: the state of this process function belongs to other keys, "
        "which KEY makes of the old ones; MERGE says what is kept where they meet; repeatable.",
    ),
]


def given_changes(
    map_uid: Sequence[str], reset_offsets: Sequence[str], rekey: Sequence[str]
) -> dict[str, Any]:
    """What is otherwise, as `run_options` takes it. Raises OptionError."""
    return {
        "map_uid": given_uids(map_uid),
        "reset_offsets": given_starts(reset_offsets),
        "rekey": given_rekeys(rekey),
    }


def given_rekeys(pairs: Sequence[str]) -> dict[str, Any]:
    """The functions of the keys, and of what is kept where they meet, by uid. Raises OptionError."""
    form = "UID=MODULE:KEY, or UID=MODULE:KEY,MERGE"
    found: dict[str, Any] = {}
    for pair in pairs:
        uid, where = _pair("--rekey", form, pair)
        name, colon, functions = where.partition(":")
        if not colon or uid in found:
            raise OptionError(f"--rekey {pair!r}: write {form}, once for each operator")
        found[uid] = _functions(f"--rekey {pair!r}", name, functions.split(","))
    return found


def _functions(asked: str, name: str, functions: Sequence[str]) -> Any:
    """One, or a tuple of several. Raises OptionError if there is none."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise OptionError(f"{asked}: {name!r} can't be imported: {error}: name a module") from error
    for each in functions:
        if not hasattr(module, each):
            raise OptionError(f"{asked}: there is no {each!r} in {name}: name a function of that module")
    found = [getattr(module, each) for each in functions]
    return found[0] if len(found) == 1 else tuple(found)


def given_uids(pairs: Sequence[str]) -> list[tuple[str, str]]:
    """Old and new uids. Raises OptionError."""
    return [_pair("--map-uid", "OLD=NEW", pair) for pair in pairs]


def given_starts(pairs: Sequence[str]) -> dict[str, Any]:
    """The starts of sources, by uid. Raises OptionError."""
    starts: dict[str, Any] = {}
    for pair in pairs:
        uid, where = _pair("--reset-offsets", "UID=WHERE", pair)
        if uid in starts:
            raise OptionError(f"--reset-offsets {pair}: {uid!r} begins at one place only: leave one out")
        starts[uid] = _start(pair, where)
    return starts


def _pair(option: str, form: str, text: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not (left and equals and right):
        raise OptionError(f"{option} {text!r}: write {form}")
    return left, right


def _start(pair: str, where: str) -> Any:
    if where in _WORDS or where.startswith("timestamp:"):
        return where
    if where.isdecimal() or _is_time(where):
        return f"timestamp:{where}"
    text = where
    if not where.startswith("{"):
        try:
            text = Path(where).read_text()
        except (OSError, UnicodeDecodeError):
            raise OptionError(f"--reset-offsets {pair}: there is no such place or file: {_FORMS}") from None
    try:
        offsets = json.loads(text)
    except (ValueError, RecursionError):
        offsets = None
    if not isinstance(offsets, dict) or not offsets:
        raise OptionError(f"--reset-offsets {pair}: these are no offsets: {_FORMS}")
    return offsets


def _is_time(text: str) -> bool:
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
