"""Functions of the user's that `map` calls for each record: where it ends, some records may be left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def check_called(calls: int, records: int) -> None:
    """Called behind a `map` over records, which takes a StopIteration of the function for the end of the
    records, without a word. Raises RuntimeError, as Python itself does where a generator raises one."""
    if calls < records:
        raise RuntimeError(
            "it raised StopIteration, as next(...) does where nothing is left: give it a default"
        )


def called_for_each(fn: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    """`list(map(fn, *columns))` of columns of one length. Raises what `fn` raises, a RuntimeError for a
    StopIteration."""
    results = list(map(fn, *columns))
    check_called(len(results), len(columns[0]))
    return results
