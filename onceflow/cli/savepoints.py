"""`onceflow savepoints tree|show|diff|delete|export`: what there is to do with savepoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import psutil
import typer

from onceflow.cli import savepoint_texts as texts
from onceflow.cli.savepoint import described
from onceflow.runtime.checkpoint.reading import StoredCheckpoint
from onceflow.runtime.checkpoint.savepoints.deleting import delete_savepoint, starts_from
from onceflow.runtime.checkpoint.savepoints.difference import compare
from onceflow.runtime.checkpoint.savepoints.exporting import export_savepoint
from onceflow.runtime.checkpoint.savepoints.folder import SavepointFolder, savepoint_at
from onceflow.runtime.checkpoint.savepoints.lineage import find_savepoints, lineage
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.environment.running_jobs import find_all, find_starting
from onceflow.runtime.errors import OnceflowError, UsageError
from onceflow.runtime.state_tables.stored_counts import OperatorCounts, counted

app = typer.Typer(
    help="Look at savepoints, compare, export and delete them.", add_completion=False, no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Count = Annotated[
    bool,
    typer.Option("--count", help="Read the tables of which the headers do not tell how much there is."),
]
Path = Annotated[str, typer.Argument(help="The savepoint's folder or URL.")]


@app.command()
def tree(
    folder: Annotated[str, typer.Argument(help="Where to look, however deep: a folder or URL.")],
    as_json: AsJson = False,
) -> None:
    """All savepoints below a folder, each under the one that its job was started from."""
    store = open_store(folder)
    found, problems = find_savepoints(store)
    if as_json:
        rows = [{**described(each.taken, each.where), **texts.origin(each.taken)} for each in found]
        typer.echo(json.dumps({"savepoints": rows, "problems": problems}))
        return
    if not found and not problems:
        raise UsageError(f"{store.describe()} has no savepoint; `onceflow savepoint` takes one")
    texts.show(texts.tree(store.describe(), lineage(found)))
    for problem in problems:
        typer.echo(problem, err=True)


@app.command()
def show(path: Path, is_read: Count = False, as_json: AsJson = False) -> None:
    """Who took it of what and when, its operators and how much each state of them has, and how far each
    source was read. Of state files only headers are read, unless --count asks for more."""
    folder = savepoint_at(path)
    taken = folder.read()
    files = folder.files_of(taken)
    states, counts = StoredCheckpoint(files, taken.manifest).tables, counted(files, taken.manifest, is_read)
    if as_json:
        typer.echo(json.dumps(texts.whole(taken, states, counts)))
        return
    for line in texts.heading(taken):
        typer.echo(line)
    for table in texts.tables(taken, states, counts):
        texts.show(table)
    _say_what_is_missing(counts)


@app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="A savepoint's folder or URL.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    is_read: Count = False,
    as_json: AsJson = False,
) -> None:
    """What is the same in two savepoints, and what is new, dropped, or evolved in the second: states with
    how much they have, and offsets. Of state files only headers are read, unless --count asks for more."""
    folders = [savepoint_at(path) for path in (before, after)]
    a, b = (folder.read() for folder in folders)
    counts = [
        counted(folder.files_of(taken), taken.manifest, is_read)
        for folder, taken in zip(folders, (a, b), strict=True)
    ]
    by_uid = [{each.uid: each.by_name for each in of if not each.not_counted} for of in counts]
    difference = compare(a.manifest, b.manifest, *by_uid)
    if as_json:
        typer.echo(json.dumps(texts.difference_rows(difference)))
        return
    for table in texts.difference_tables(difference):
        texts.show(table)
    if difference.is_none:
        typer.echo("both have the same states, with as many rows, and the same offsets")
    for of in counts:
        _say_what_is_missing(of)


@app.command()
def delete(path: Path) -> None:
    """Delete a savepoint, all of it or nothing. State files that its job still needs stay; a savepoint with
    which a job is about to begin is refused."""
    folder = savepoint_at(path)
    if (job := _starting_from(folder, path)) is not None:
        raise UsageError(
            f"the job on {job} is starting from {path}, and has not copied its state yet: delete the "
            "savepoint once the job runs"
        )
    deleted = delete_savepoint(folder)
    what = f"savepoint {deleted.savepoint_id}" if deleted else "what was left of a savepoint"
    typer.echo(f"{what} in {path} is deleted")


@app.command()
def export(
    path: Path,
    target: Annotated[str, typer.Argument(help="A new folder or URL.")],
    as_json: AsJson = False,
) -> None:
    """Copy a savepoint, pinned or not, into a folder that can be moved, on whatever store; each file is read
    there and compared with its checksum. The original stays."""
    exported = export_savepoint(savepoint_at(path), open_store(target), partial(typer.echo, err=True))
    if as_json:
        typer.echo(json.dumps(described(exported, target)))
    else:
        typer.echo(f"savepoint {exported.savepoint_id} is in {target}, and was verified there")


def _say_what_is_missing(counts: Sequence[OperatorCounts]) -> None:
    for each in counts:
        if each.not_counted:
            typer.echo(f"not all of {each.uid!r} is counted: {each.not_counted}", err=True)


def _starting_from(folder: SavepointFolder, path: Path) -> str | None:
    """The checkpoint folder of a job of this user's on this machine that has yet to copy this savepoint. One
    whose folder can't be read at once is told and not waited for: most likely it is about something else."""
    try:
        savepoint_id = folder.read().savepoint_id
    except UsageError:
        return None  # perhaps what a crash has left
    jobs = {job.checkpoint_dir: job.pid for job in find_all()}
    jobs |= {job.checkpoint_dir: job.pid for job in find_starting()}
    for place, pid in sorted(jobs.items()):
        try:
            if starts_from(open_store(place, patience_s=0), savepoint_id):
                return place
        except (OnceflowError, OSError) as e:
            if psutil.pid_exists(pid):
                typer.echo(f"whether the job on {place} is starting from {path} can't be told: {e}", err=True)
    return None
