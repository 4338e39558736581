"""Splits of several sources in one: nothing of them is lost on the way, whatever finishes when."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from onceflow.connectors.hybrid.stages import Finished, first_splits, inner, number_of, then_of
from onceflow.runtime.contracts import SplitState

NAMES = st.lists(st.sampled_from(["a", "b/c", "1/x", ""]), max_size=3, unique=True)
SOURCES = st.lists(NAMES, min_size=1, max_size=5).map(
    lambda sources: [
        [SplitState(name, {"at": [n, name]}) for name in names] for n, names in enumerate(sources)
    ]
)


@given(SOURCES)
def test_each_source_is_read_with_just_its_own_splits_one_after_the_other(
    sources: list[list[SplitState]],
) -> None:
    """Walked through as the engine does: what finishes goes, through JSON, into what is remembered."""
    splits, seen = first_splits(sources), []
    while splits:
        numbers = {number_of(split.split_id) for split in splits}
        assert len(numbers) == 1
        seen.append((numbers.pop(), [inner(split) for split in splits]))
        then = next((then_of(split) for split in splits if then_of(split) is not None), None)
        done = Finished(seen[-1][0], None, json.loads(json.dumps(then)))
        splits = Finished.of(json.loads(json.dumps(done.to_json()))).next_splits
    assert seen == [(number, splits) for number, splits in enumerate(sources) if splits]


def test_nothing_is_remembered_at_first() -> None:
    assert Finished.of(None) == Finished()
    assert Finished.of(None).next_splits == []
