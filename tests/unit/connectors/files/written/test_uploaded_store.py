"""A commit on S3 asks for several files at once. What each of its calls does is tested in test_commits.py,
with crashes between all of them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from onceflow.connectors.files.written.part import Part
from onceflow.connectors.files.written.uploaded_store import UploadedStore
from onceflow.runtime.errors import Unavailable
from tests.simulated_uploads import SimulatedUploads

AT_ONCE = 4
DEADLINE_S = 60


def store_of(uploads: Any) -> UploadedStore:
    return UploadedStore(uploads, "here", "here/.onceflow/beef0123.out", lambda name: True, AT_ONCE)


def written(store: UploadedStore, count: int) -> list[Part]:
    """The parts of new files that are whole, and seen by nobody."""
    parts = []
    for number in range(count):
        file = store.create(f"{number}.jsonl", f"hidden-{number}", 1)
        file.write(b"{}\n")
        parts.append(file.finish())
    return parts


class Together(SimulatedUploads):
    """Each question is answered when AT_ONCE are asked."""

    def __init__(self) -> None:
        super().__init__()
        self._all = threading.Barrier(AT_ONCE, timeout=DEADLINE_S)

    def complete(self, *arguments: Any) -> None:
        self._all.wait()
        super().complete(*arguments)

    def is_there(self, *arguments: Any) -> bool:
        self._all.wait()
        return super().is_there(*arguments)


def test_files_are_looked_for_and_shown_several_at_once() -> None:
    uploads = Together()
    store = store_of(uploads)
    parts = written(store, 2 * AT_ONCE)
    uploads.abort("here/5.jsonl", parts[5].upload)
    assert store.missing(parts) == parts[5]
    whole = [part for part in parts if part != parts[5]]
    store.show([*whole, whole[0]])
    assert sorted(uploads.names("here/")) == [f"{number}.jsonl" for number in (0, 1, 2, 3, 4, 6, 7)]


class BeginsLate(SimulatedUploads):
    """The store does not answer who begins a file until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()

    def begin(self, key: str) -> str:
        assert self.answers.wait(DEADLINE_S)
        return super().begin(key)


def test_rows_are_written_while_the_store_is_asked_for_their_files() -> None:
    """And a checkpoint waits for the answer where it is made durable, on another thread."""
    uploads = BeginsLate()
    store = store_of(uploads)
    files = [store.create(f"{number}.jsonl", f"hidden-{number}", 1) for number in range(3)]
    for file in files:
        file.write(b"{}\n")
    make_durable = files[0].cut(7)
    uploads.answers.set()
    open_part = make_durable()
    assert (open_part.upload, open_part.size) == (files[0].finish().upload, 3)
    store.show([file.finish() for file in files])
    assert [uploads.objects[f"here/{number}.jsonl"] for number in range(3)] == [b"{}\n"] * 3


def test_what_is_given_up_can_be_found_by_the_next_attempt() -> None:
    uploads = BeginsLate()
    store = store_of(uploads)
    file = store.create("0.jsonl", "hidden-0", 1)
    closing = threading.Thread(target=file.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive(), "it waits for the store, which knows of no upload yet"
    uploads.answers.set()
    closing.join(DEADLINE_S)
    ((key, upload),) = store.leftovers()
    store.abandon([(key, upload)])
    assert store.leftovers() == []


class OneFails(SimulatedUploads):
    """The first file fails while the second is on its way, whose end waits for the caller's, in vain."""

    def __init__(self) -> None:
        super().__init__()
        self.second_begins = threading.Event()
        self.returned = threading.Event()
        self.was_left_alone: bool | None = None

    def complete(self, key: str, *arguments: Any) -> None:
        if key == "here/0.jsonl":
            assert self.second_begins.wait(DEADLINE_S)
            raise Unavailable("the store is away")
        self.second_begins.set()
        self.was_left_alone = self.returned.wait(0.2)
        super().complete(key, *arguments)


def test_when_one_can_not_be_shown_none_is_on_its_way_any_more() -> None:
    uploads = OneFails()
    store = store_of(uploads)
    with pytest.raises(Unavailable, match="the store is away"):
        store.show(written(store, 2))
    uploads.returned.set()
    assert uploads.was_left_alone is False
    assert uploads.names("here/") == ["1.jsonl"]
