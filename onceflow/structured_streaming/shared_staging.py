"""The staging folder that the driver and all tasks see: its sign, and what is deleted when."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

from onceflow.runtime.errors import Fatal
from onceflow.structured_streaming.staging import Folder

_SIGN = "driver.json"
_BATCH = "batch-"


def put_sign(folder: Folder) -> None:
    """The driver, before any task: a file by which tasks see that the folder is the driver's, too."""
    if folder.read(_SIGN) is None:
        folder.put(_SIGN, json.dumps({"host": socket.gethostname()}).encode())


def check_sign(folder: Folder) -> None:
    """A task, before it stages anything. Raises Fatal if it doesn't see the driver's sign."""
    if folder.read(_SIGN) is None:
        raise Fatal(
            f"staging folder {folder.url} is not shared: this executor, on host {socket.gethostname()}, does "
            'not see what the driver wrote there; give .option("staging", URL) in storage that all of them '
            "reach (s3://, gs://, abfs://, hdfs://, or a mounted folder). Nothing was written"
        )


def end_staging(folder: Folder) -> None:
    """The driver, when a write is over: delete the folder, its sign first, by which a task that still runs
    sees that it has to delete what it has made."""
    folder.delete(_SIGN)
    folder.delete_all()


def batch_folder(batch_id: int) -> str:
    """The name of a batch's folder, in its query's."""
    return f"{_BATCH}{batch_id}"


def sweep(folder: Folder, batch_id: int) -> None:
    """Delete the files of this batch and of those before it, dead attempts' included. It is written: no
    attempt needs them any more."""
    for name in folder.names():
        number = name.removeprefix(_BATCH)
        if name != number and number.isdigit() and int(number) <= batch_id:
            folder.delete(name)


@contextlib.contextmanager
def leaving_nothing_if_given_up(folder: Folder) -> Iterator[None]:
    """Around what a task writes. Raises Fatal, with nothing left, if the write is given up meanwhile: Spark
    tells the driver that another task has failed while this one still runs."""
    try:
        yield
    finally:
        if folder.read(_SIGN) is None:  # deleted with the folder, which this task has made again
            folder.delete_all()
            raise Fatal(f"the write to {folder.url} was given up, since another of its tasks has failed")
