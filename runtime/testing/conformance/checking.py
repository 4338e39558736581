"""What the checks share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from onceflow.runtime.contracts import Committable, Fetch, SourceReader, SplitState

DEADLINE_S = 120.0
_NOTHING_S = 0.001


def polled(reader: SourceReader, records_max: int) -> Fetch | None:
    """What one poll brings. A reader that has nothing yet gets the processor for a moment: its threads bring
    the rows, and a caller that polls without a pause would keep Python's lock from them."""
    fetch = reader.poll(100, records_max)
    if fetch is None:
        time.sleep(_NOTHING_S)
    return fetch


def raises(kind: type[BaseException] | tuple[type[BaseException], ...], action: Callable[[], Any]) -> bool:
    """Whether it raised this; anything else passes through."""
    try:
        action()
    except kind:
        return True
    return False


def through_json(split: SplitState) -> SplitState:
    """The split as it comes back from a manifest."""
    return SplitState(split.split_id, json.loads(json.dumps(dict(split.position))))


def through_json_committable(committable: Committable) -> Committable:
    """The committable as it comes back from a manifest."""
    return Committable(**json.loads(json.dumps(asdict(committable))))


def expect_rows(seen: Sequence[int], expected: Sequence[int], why: str) -> None:
    """Raise AssertionError, and say what is lost, doubled or too much, unless these rows are seen."""
    extra, missing = sorted(set(seen) - set(expected)), sorted(set(expected) - set(seen))
    doubled = sorted({n for n in seen if list(seen).count(n) > 1})
    wrong = (("lost are", missing), ("there are also", extra), ("doubled are", doubled))
    said = "; ".join(f"{what} {rows}" for what, rows in wrong if rows)
    assert not said, f"{why}: expected to see {sorted(expected)}, and {said}"
