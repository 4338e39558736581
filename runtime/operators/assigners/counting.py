"""Count windows: so many rows of a key, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Windows of `rows` rows of a key each, in the order in which they come."""

    rows: int

    @property
    def title(self) -> str:
        """For the plan."""
        return f"of {self.rows} rows"


@explained
def count_window(rows: int) -> CountWindow:
    """Windows of so many rows of a key, in the order in which they come, whatever their event times. A window
    fires with its last row; one that is not full when the input ends sends nothing. Raises OptionError if it
    is no number of rows."""
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise OptionError(f"rows={rows!r}: a count window has at least 1 row: give a number")
    return CountWindow(rows)
