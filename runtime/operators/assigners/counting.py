"""Count windows: so many rows of a key, one after the other, or the last so many again and again."""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Windows of `rows` rows of a key each, in the order in which they come."""

    rows: int
    slide: int | None = None
    """The number of rows from the end of a window to that of the next, less than `rows`; None: each row is
    in one window."""

    @property
    def title(self) -> str:
        """What a plan says of these windows."""
        return f"of {self.rows} rows" if self.slide is None else f"of {self.rows} rows every {self.slide}"


@explained
def count_window(rows: int, slide: int | None = None) -> CountWindow:
    """Windows of so many rows of a key, in the order in which they come, whatever their event times. A window
    fires with its last row; one that is not full when the input ends sends nothing.

    `slide`: every so many rows of a key the last `rows` of it, of which there are fewer at first: with
    count_window(100, slide=10) after 10, 20, 30 rows and so on. What a key needs for its next window is kept
    for good. Raises OptionError for what is not a number of rows, and for a slide of more rows than a window.
    """
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise OptionError(f"rows={rows!r}: a count window has at least 1 row: give a number")
    if slide is None or slide == rows:
        return CountWindow(rows)
    if not isinstance(slide, int) or isinstance(slide, bool) or slide < 1:
        raise OptionError(f"slide={slide!r}: a count window slides by at least 1 row: give a number")
    if slide > rows:
        raise OptionError(
            f"slide={slide} is more than rows={rows}: rows between two windows would be in none; use at most "
            f"slide={rows}"
        )
    return CountWindow(rows, slide)
