"""Taking back: the folder of a sink as it was when an older checkpoint had been committed.

What a job has shown since then is, by the names of its files:

- a file that was begun later: it goes;
- one that was open then, and has more rows now: it is cut to what the older checkpoint has of it;
- one that is still open: it is shown as far as that checkpoint has it, as after any restart.

A success marker of a folder in which one of these was goes as well, since its rows come again. Each step does
nothing where it was done before, so a crash between two of them costs nothing; what somebody has taken away
stays away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceflow.connectors.files.written.output_store import OutputStore
from onceflow.connectors.files.written.plan import Ledger, Promise

BegunAt = Callable[[str], int | None]
"""The checkpoint after which a file was begun, by its name; None: the sink has not made it."""


def take_back(
    store: OutputStore,
    ledger: Ledger,
    promises: Sequence[Promise],
    to: int,
    begun_at: BegunAt,
    marker: str | None,
) -> Ledger:
    """`ledger`: of what is committed; `promises`: those of checkpoint `to`, which is. The ledger after it.
    Raises OSError, Fatal."""
    kept = {part.name: part for promise in promises for part in promise.open}
    shown = store.shown()
    for part in ledger.open:
        # One that is seen was shown by a commit that was cut off, whose ledger nobody has written.
        if part.name in kept and part.name not in shown:
            store.show_left(part)
    changed = _drop_later(store, shown, to, begun_at)
    for name, part in kept.items():
        if store.cut(name, part.size):
            changed.add(_folder(name))
    if marker is not None:
        store.take_away([f"{folder}/{marker}" for folder in sorted(changed) if folder])
    store.make_names_durable()
    folders = dict(ledger.folders)
    for promise in promises:
        folders.update({name: end for name, end in promise.folders.items() if name in changed})
    return Ledger((), folders)


def _drop_later(store: OutputStore, shown: Sequence[str], to: int, begun_at: BegunAt) -> set[str]:
    """The folders of the files that went."""
    later = [name for name in shown if (begun := begun_at(name)) is not None and begun > to]
    store.take_away(later)
    return {_folder(name) for name in later}


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
