"""What the library says, as one sentence."""

from __future__ import annotations

import pytest
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError

from onceflow.connectors.delta.library_errors import asking, committing, in_a_line
from onceflow.runtime.errors import Fatal, Indeterminate, Unavailable

TREE = (
    "Kernel error -> Generic error\n   \x1b[31m↳\x1b[0m Unable to rename\n    \x1b[31m↳\x1b[0m Is a directory"
)
STACK = "Json error: no field:\n   0: <unknown>\n   1: start_thread\n             at ./x.c:4:8\n"


def test_trees_and_stacks_are_one_line() -> None:
    assert in_a_line(DeltaError(TREE)) == "Kernel error -> Generic error: Unable to rename: Is a directory"
    assert in_a_line(DeltaError(STACK)) == "Json error: no field"


@pytest.mark.parametrize("error", [CommitFailedError("conflict"), OSError("reset"), ValueError("odd")])
def test_a_commit_that_raises_is_in_doubt_whatever_it_says(error: Exception) -> None:
    """A client below that sends a request twice meets itself, and calls it a conflict."""
    with pytest.raises(Indeterminate, match="the commit is in doubt"), committing("table"):
        raise error
    with pytest.raises(Unavailable), asking("table"):
        raise error


def test_a_table_that_the_library_can_not_write_ends_the_job() -> None:
    with pytest.raises(Fatal), committing("table"):
        raise DeltaProtocolError("writer version 9")
