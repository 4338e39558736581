"""`onceflow compare A B`: what two dry runs would have written, sink by sink."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.markup import escape
from rich.table import Table

from onceflow.cli.compared_rows import ComparedRows, compared
from onceflow.cli.dry_run import KEY
from onceflow.cli.savepoint_texts import show
from onceflow.connectors.files.place import Place
from onceflow.runtime.errors import OptionError, UsageError
from onceflow.runtime.nearest import nearest

DIFFERENT = 1
"""Exit code: they differ."""

app = typer.Typer(
    help="Compare what two dry runs would have written. Exit code 0: the same, 1: they differ.",
    add_completion=False,
)


@app.command()
def compare(
    before: Annotated[str, typer.Argument(metavar="A", help="FOLDER of `onceflow run --dry-sink FOLDER`.")],
    after: Annotated[str, typer.Argument(metavar="B", help="That of another run.")],
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="UID=COLUMNS",
            help="Compare a sink by these columns, with commas between them, and not row by row; repeatable. "
            "Default: its own key.",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Leave out this column; repeatable.")
    ] = None,
    rows: Annotated[int, typer.Option(help="How many rows of each difference to show.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Per sink: rows that are in one only, and with a key those that have changed. Rows are in memory."""
    sides = [_sinks(each) for each in (before, after)]
    uids = list(dict.fromkeys([*sides[0], *sides[1]]))
    keys = _keys(key or [], uids)
    found = {uid: _compared(sides, uid, keys.get(uid), ignore or [], max(0, rows)) for uid in uids}
    if as_json:
        typer.echo(json.dumps({"sinks": [_as_json(uid, each) for uid, each in found.items()]}, default=str))
    else:
        for table in _tables(found):
            show(table)
    if any(each.differ for each in found.values()):
        raise typer.Exit(DIFFERENT)


def _sinks(folder: str) -> Mapping[str, list[pa.Table]]:
    """The files of each sink, by its uid, in the order in which they were written."""
    place = Place(folder)
    try:
        paths = [str(path) for path in place.fs.find(place.path)]
    except FileNotFoundError:
        paths = []
    found: dict[str, list[pa.Table]] = {}
    root = place.path.rstrip("/") + "/"
    for path in sorted(paths):
        uid, _, name = path.removeprefix(root).partition("/")
        if name.endswith(".parquet") and not any(part[0] in "._" for part in name.split("/")):
            with place.fs.open(path, "rb") as file:
                found.setdefault(uid, []).append(pq.read_table(file))
    if not found:
        raise UsageError(
            f"{folder} has no rows of a dry run: name the FOLDER of an `onceflow run --dry-sink FOLDER` "
            "that has completed a checkpoint with some"
        )
    return found


def _keys(given: Sequence[str], uids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    keys: dict[str, tuple[str, ...]] = {}
    for pair in given:
        uid, _, columns = pair.partition("=")
        if not columns:
            raise OptionError(f"--key {pair!r}: write UID=COLUMN, or UID=COLUMN,COLUMN")
        if uid not in uids:
            raise OptionError(
                f"--key {pair}: there is no sink {uid!r}{nearest(uid, uids)}: use one of {', '.join(uids)}"
            )
        keys[uid] = tuple(columns.split(","))
    return keys


def _compared(
    sides: Sequence[Mapping[str, list[pa.Table]]],
    uid: str,
    key: Sequence[str] | None,
    ignored: Sequence[str],
    examples_max: int,
) -> ComparedRows:
    tables = [
        pa.concat_tables(side[uid], promote_options="permissive") if uid in side else None for side in sides
    ]
    schema = next(table.schema for table in tables if table is not None)
    if key is None:
        key = json.loads((schema.metadata or {}).get(KEY, b"[]"))
    whole = [schema.empty_table() if table is None else table for table in tables]
    before, after = (pl.DataFrame(pl.from_arrow(table)) for table in whole)
    known = [name for name in before.columns if name in after.columns]
    for column in key:
        if column not in known:
            raise OptionError(
                f"sink {uid!r} has no column {column!r} in both{nearest(column, known)}: use one of "
                f"{', '.join(known)}"
            )
    return compared(before, after, tuple(key), ignored, examples_max)


def _as_json(uid: str, found: ComparedRows) -> dict[str, Any]:
    return {
        "uid": uid,
        "differ": found.differ,
        "key": list(found.key),
        "same": found.same,
        "only_in_a": found.only_before,
        "only_in_b": found.only_after,
        "changed": found.changed,
        "columns_only_in_a": list(found.columns_before),
        "columns_only_in_b": list(found.columns_after),
        "rows": list(found.examples),
    }


def _tables(found: Mapping[str, ComparedRows]) -> Iterator[Table]:
    whole = Table("sink", "key", "same", "only in A", "only in B", "changed", "columns")
    for uid, each in found.items():
        gone, new = (f"-{name}" for name in each.columns_before), (f"+{name}" for name in each.columns_after)
        counts = [each.same, each.only_before, each.only_after, each.changed if each.key else "-"]
        cells = [uid, ", ".join(each.key) or "-", *map(str, counts), ", ".join([*gone, *new])]
        whole.add_row(*map(escape, cells), style="yellow" if each.differ else None)
    yield whole
    for uid, each in found.items():
        if each.examples:
            names = list(each.examples[0])
            rows = Table(*map(escape, ["", *names[1:]]), title=escape(f"{uid}: some that differ"))
            for row in each.examples:
                rows.add_row(*(escape(str(row[name])) for name in names))
            yield rows
