"""Options of `onceflow run` on guarantees, barriers, restarts and more, as the command line has them."""

from __future__ import annotations

from typing import Annotated

import typer

from onceflow.runtime.errors import UsageError

MasterOption = Annotated[str, typer.Option(help="As Spark names it; or threads[N], without Spark.")]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; repeatable.")
]
GuaranteeOption = Annotated[str, typer.Option(help="exactly-once, at-least-once or at-most-once.")]
BarriersOption = Annotated[
    str, typer.Option(help="aligned, unaligned, or halt: sources stand still for each checkpoint.")
]
CheckpointTimeoutOption = Annotated[str, typer.Option(help="After so long a checkpoint is given up.")]
UnalignedOption = Annotated[bool, typer.Option("--unaligned", help="The same as --barriers unaligned.")]
AlignmentTimeoutOption = Annotated[
    str | None, typer.Option(help="After so long an aligned barrier goes on unaligned. Default: never.")
]
InFlightOption = Annotated[
    str, typer.Option(help="How much work may wait in a channel, as the time that it takes.")
]
StateBackendOption = Annotated[
    str, typer.Option(help="heap, or rocksdb: what does not fit in memory lies on the slot's disk.")
]
StateMemoryOption = Annotated[
    str | None,
    typer.Option(
        help="What state may take in the memory of a slot, as in 512MB. Default: no limit; 512MB for rocksdb."
    ),
]
IncrementalOption = Annotated[
    bool | None,
    typer.Option(
        help="Write only what has changed since the last checkpoint, and a part of the rest. "
        "Default: with rocksdb."
    ),
]
RestartOption = Annotated[
    str, typer.Option(help="exponential, fixed:1 s:10 (delay, failures in a row), or none.")
]
StartFromOption = Annotated[
    str | None,
    typer.Option("--from", help="A checkpoint's id instead of the latest, or a savepoint's folder."),
]
AcceptDuplicatesOption = Annotated[
    int | None,
    typer.Option(
        "--accept-duplicates-after",
        metavar="ID",
        help="With --from ID: write again what later checkpoints have appended.",
    ),
]
DrySinkOption = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Write what each sink would get to FOLDER/<uid> as Parquet, and nothing to the sinks.",
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN",
        help="End sources that have no end: at latest, at a time, or where the job or savepoint in a folder "
        "has come.",
    ),
]
DebugOption = Annotated[
    bool,
    typer.Option("--debug", help="Show the traceback of a slot's failure, and what clients log."),
]
AllowDroppedStateOption = Annotated[
    bool, typer.Option("--allow-dropped-state", help="Drop state that the program has no place for.")
]


def given_barriers(barriers: str, unaligned: bool) -> str:
    """What the two options say together. Raises UsageError."""
    if unaligned and barriers == "halt":
        raise UsageError("--unaligned and --barriers halt exclude each other: leave one of them out")
    return "unaligned" if unaligned else barriers
