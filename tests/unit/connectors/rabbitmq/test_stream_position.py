"""StreamPosition: through JSON and back, and when what follows is gone."""

from __future__ import annotations

import json

import pytest

from onceflow.connectors.rabbitmq.stream_position import Found, StreamPosition, digest, truncated
from onceflow.runtime.contracts import SplitState
from onceflow.runtime.errors import DataLossError

READ = StreamPosition(10, None, digest(b"nine"))
NINE = Found(9, digest(b"nine"))


def test_a_position_comes_back_from_the_checkpoint() -> None:
    position = StreamPosition(7, 9, digest(b"x"))
    state = position.state("s")
    assert StreamPosition.of(SplitState("s", json.loads(json.dumps(state.position)))) == position


def test_it_is_finished_at_its_bound() -> None:
    assert StreamPosition(9, 9).is_finished
    assert not StreamPosition(8, 9).is_finished
    assert not StreamPosition(8).is_finished


@pytest.mark.parametrize(
    ("position", "found", "first", "last", "gone_until"),
    [
        (READ, NINE, None, None, None),
        (READ, Found(10, "x"), Found(10, "x"), None, None),
        (READ, Found(11, "x"), Found(11, "x"), None, 11),
        (StreamPosition(10), Found(12, "x"), Found(3, "x"), None, None),
        (StreamPosition(0), None, None, None, None),
        (StreamPosition(0), Found(4, "x"), Found(4, "x"), None, 4),
    ],
)
def test_messages_are_gone_if_the_stream_begins_behind_them(
    position: StreamPosition,
    found: Found | None,
    first: Found | None,
    last: Found | None,
    gone_until: int | None,
) -> None:
    assert position.check("s", found, first, last) == gone_until


@pytest.mark.parametrize(
    ("found", "last", "said"),
    [
        (Found(9, digest(b"other")), None, "another message is at 9"),
        (None, Found(3, "x"), "its last message is at 3"),
        (None, None, "it has no message"),
    ],
)
def test_a_stream_that_was_made_anew_is_known(found: Found | None, last: Found | None, said: str) -> None:
    with pytest.raises(
        DataLossError, match=f"stream 's' has to go on at offset 10, and {said}: it was deleted"
    ):
        READ.check("s", found, found, last)


def test_what_is_gone_is_named_with_its_offsets() -> None:
    said = str(truncated("s", READ, 84_039))
    assert said.startswith(
        "stream 's' has to go on at offset 10, and its first message is at 84039: retention"
    )
