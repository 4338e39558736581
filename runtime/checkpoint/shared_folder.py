"""Whether a slot and the driver see the same checkpoint folder.

On a cluster the folder has to be a shared one, under the same path on each machine. Where it is not, a slot
would write its state into a folder of its own machine: the job would run, and no restart could find it.
So each slot looks, before it does anything else, for what the driver has just written: the entry of the
log that began this attempt, whose content no other driver and no other attempt has written.
"""

from __future__ import annotations

from onceflow.runtime.checkpoint.fingerprints import is_lasting
from onceflow.runtime.checkpoint.manifest import AttemptEntry
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import Fatal, Retryable, Unavailable


def check_is_shared(store: CheckpointStore, entry: AttemptEntry, host: str) -> None:
    """Called by a slot once, before it writes or reads anything in the folder; `host` names its machine.

    The entry is asked for by its name, which nobody has asked for before: a listing of the folder may be
    an old one on a network file system. Raises Fatal if the entry is not there or another one is,
    Unavailable or Retryable if it can't be read.
    """
    where = f"the checkpoint folder {store.describe()} on {host}"
    is_another = f"{where} is not the one in which the driver writes: {entry.path}"
    wanted = "on a cluster the folder has to be on a file system that all machines share, under the same path"
    try:
        found = store.read(entry.path)
    except (FileNotFoundError, NotADirectoryError):
        raise Fatal(f"{is_another} is not in it; {wanted}") from None
    except OSError as error:
        kind = Unavailable if is_lasting(error) else Retryable
        raise kind(f"{where} can't be read: {error}") from error
    if found != entry.content:
        raise Fatal(f"{is_another} has another content there; {wanted}")
