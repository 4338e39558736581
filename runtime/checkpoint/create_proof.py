"""The proof that a store's create is conditional: it is raced against itself, before anything rests on it.

All safety against two drivers is one sentence of `CheckpointStore.create`: one caller wins. Some servers and
some libraries take the condition and ignore it, and then two drivers would both complete a checkpoint.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

from onceflow.runtime.checkpoint.store import AlreadyExists, CheckpointStore
from onceflow.runtime.errors import Indeterminate, OptionError, Retryable, Unavailable

PROOF_FOLDER = "proof"
ROUNDS = 3
RACERS = 6


def prove_create(store: CheckpointStore) -> None:
    """Called by a driver before it reads or writes the log, once.

    A few files are created by several threads at once and once more afterwards, and deleted again; a crash
    leaves them, and nobody reads them. Raises OptionError if more than one has won, or somebody's file was
    replaced; Retryable, Unavailable as a rule, if the store does not answer.
    """
    token = uuid.uuid4().hex
    paths = [f"{PROOF_FOLDER}/{token}.{number}" for number in range(ROUNDS)]
    try:
        with ThreadPoolExecutor(RACERS, "onceflow-proof") as pool:
            for path in paths:
                _race(store, path, pool)
    except (Indeterminate, OSError) as error:  # it has not worked yet: rather a wrong setting than an outage
        raise Unavailable(
            f"the checkpoint folder {store.describe()} can't be used at the start of a run: {error}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            store.delete(paths)


def _race(store: CheckpointStore, path: str, pool: ThreadPoolExecutor) -> None:
    start = threading.Barrier(RACERS)

    def create(number: int) -> Exception | None:
        start.wait()
        return _create(store, path, number)

    outcomes = list(pool.map(create, range(RACERS)))
    again = _create(store, path, RACERS)  # it is there by now, for sure
    winners = [number for number, outcome in enumerate([*outcomes, again]) if outcome is None]
    if len(winners) > 1:
        _refuse(store, f"{len(winners)} of {RACERS + 1} writers have created the same file")
    if isinstance(again, Retryable | Indeterminate):
        raise again
    # None has won if the answer to the winner was lost, and its second try has found its own file.
    possible = winners or range(RACERS)
    if store.read(path) not in {_content(number) for number in possible}:
        _refuse(store, "a file that was there was replaced")


def _create(store: CheckpointStore, path: str, number: int) -> Exception | None:
    try:
        store.create(path, _content(number))
    except (AlreadyExists, Retryable, Indeterminate) as error:
        return error
    return None


def _content(number: int) -> bytes:
    return f"racer {number}".encode()


def _refuse(store: CheckpointStore, what: str) -> None:
    raise OptionError(
        f"{store.describe()} can't hold checkpoints: {what}, so two drivers could complete the same "
        "checkpoint; use a store that keeps its word on conditional writes (If-None-Match)"
    )
