"""The end of a sentence about a name that is not there: the one that was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str]) -> str:
    """` (did you mean 'amount'?)` or the empty string, to end a sentence. Case does not matter."""
    by_lower = {each.lower(): each for each in candidates}
    found = difflib.get_close_matches(name.lower(), list(by_lower), n=1)
    return f" (did you mean {by_lower[found[0]]!r}?)" if found else ""
