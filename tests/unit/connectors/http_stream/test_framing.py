"""Bytes to events: the same whatever pieces they come in, and as the HTML standard has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.connectors.http_stream.framing import Event, JsonLines, ServerSentEvents, id_in
from onceflow.runtime.errors import BadRecordError

TEXT = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=8)
EVENTS = st.lists(st.tuples(TEXT.filter(bool), st.lists(TEXT, min_size=1, max_size=3), TEXT), max_size=6)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@given(EVENTS, ENDS, st.lists(st.integers(1, 5)), st.booleans())
def test_events_are_the_same_whatever_pieces_they_come_in(
    events: list[tuple[str, list[str], str]], end: str, cuts: list[int], has_mark: bool
) -> None:
    lines: list[str] = []
    for event_id, data, comment in events:
        lines += [f": {comment}", f"id: {event_id}", *(f"data: {line}" for line in data), ""]
    raw = ("\ufeff" if has_mark else "").encode() + "".join(line + end for line in lines).encode()
    raw += b": behind the last, so that it is whole\n"
    framing, found = ServerSentEvents(), []
    for size in [*cuts, len(raw)]:
        piece, raw = raw[:size], raw[size:]
        found += framing.feed(piece)
    assert found == [Event("\n".join(data).encode(), event_id) for event_id, data, _ in events]


@pytest.mark.parametrize(
    ("block", "event"),
    [
        ("data:x", Event(b"x", None)),
        ("data:  x", Event(b" x", None)),
        ("data", Event(b"", None)),
        ("data: a\ndata: b", Event(b"a\nb", None)),
        ("event: trade\nid: 7\ndata: x", Event(b"x", "7", "trade")),
        ("event:\ndata: x", Event(b"x", None)),
        ("id: a\0b\ndata: x", Event(b"x", None)),
        ("id\ndata: x", Event(b"x", None)),
        ("unknown: 1\ndata: x", Event(b"x", None)),
        ("id: 7", None),
        (": nothing", None),
        ("", None),
    ],
)
def test_a_block_is_what_the_standard_says(block: str, event: Event | None) -> None:
    assert ServerSentEvents().feed(f"{block}\n\n".encode()) == ([] if event is None else [event])


def test_the_time_after_which_the_server_wants_to_be_asked_again_is_kept() -> None:
    framing = ServerSentEvents()
    framing.feed(b"retry: 1500\n\nretry: soon\n\n")
    assert framing.retry_ms == 1_500


@given(st.lists(st.integers(0, 1 << 62), max_size=6), st.lists(st.integers(1, 5)))
def test_lines_are_the_same_whatever_pieces_they_come_in(ids: list[int], cuts: list[int]) -> None:
    raw = b"".join(b'{"seq": %d, "x": [1]}\r\n\n' % number for number in ids) + b'{"seq": 9'
    framing, found = JsonLines(id_in("seq")), []
    for size in [*cuts, len(raw)]:
        piece, raw = raw[:size], raw[size:]
        found += framing.feed(piece)
    assert [event.id for event in found] == [str(number) for number in ids]


def test_ids_are_texts_or_integers_or_none() -> None:
    find = id_in("id")
    assert (find(b'{"id": "a"}'), find(b'{"id": 1}'), find(b'{"id": null}'), find(b"{}")) == (
        "a",
        "1",
        None,
        None,
    )
    assert id_in(None)(b"anything") is None


@pytest.mark.parametrize("line", [b'{"id": 1.5}', b"[]", b"{"])
def test_a_line_whose_id_can_not_be_read_is_named(line: bytes) -> None:
    with pytest.raises(BadRecordError, match="name the right one with id_field="):
        id_in("id")(line)
