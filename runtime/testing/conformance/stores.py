"""What every CheckpointStore must do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from onceflow.runtime.checkpoint.store import AlreadyExists, CheckpointStore
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.checking import DEADLINE_S, raises


@quotations.of(CheckpointStore.create, "every later `read` and `list`, from anywhere, sees the file.")
def create_makes_a_file_that_is_there_at_once(store: CheckpointStore) -> None:
    store.create("log/0.json", b"one")
    assert store.read("log/0.json") == b"one", f"it reads {store.read('log/0.json')!r}, and wrote b'one'"
    listed = [(s.path, s.size) for s in store.list("log")]
    assert listed == [("log/0.json", 3)], f"log/0.json with 3 bytes was created, and listed are {listed}"


@quotations.of(CheckpointStore.create, "Raises AlreadyExists (nothing changed)")
def create_never_replaces(store: CheckpointStore) -> None:
    store.create("log/0.json", b"one")
    for content in (b"two", b"one", b""):
        again = raises(AlreadyExists, lambda c=content: store.create("log/0.json", c))  # type: ignore[misc]
        assert again, "a file was created that was there"
    assert store.read("log/0.json") == b"one", "a file that was there has changed"
    store.delete(["log/0.json"])
    store.create("log/0.json", b"three")


@quotations.of(CheckpointStore.create, "whole or not at all, one caller wins.")
def of_many_creators_one_wins(store: CheckpointStore) -> None:
    """Thirty positions, eight threads at once for each."""
    with ThreadPoolExecutor(8) as pool:
        for position in range(30):
            path = f"log/{position}.json"
            start = threading.Barrier(8)

            def attempt(number: int, path: str = path, start: threading.Barrier = start) -> bool:
                start.wait()
                return not raises(AlreadyExists, lambda: store.create(path, f"writer {number}".encode()))

            won = [number for number, has_won in enumerate(pool.map(attempt, range(8))) if has_won]
            assert len(won) == 1, f"{path} was created by {won}"
            assert store.read(path) == f"writer {won[0]}".encode()


@quotations.of(CheckpointStore.create, "whole or not at all, one caller wins.")
def nobody_sees_half_a_file(store: CheckpointStore) -> None:
    """A reader looks all the time while large files are created."""
    content = bytes(range(256)) * 8_192
    over = threading.Event()
    seen: list[int] = []

    def look() -> None:
        position = 0
        while position < 10:
            was_over = over.is_set()
            try:
                seen.append(len(store.read(f"log/{position}.json")))
                position += 1
            except FileNotFoundError:
                if was_over:
                    return

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        for position in range(10):
            store.create(f"log/{position}.json", content)
        over.set()
        looking.result(DEADLINE_S)
    halves = [size for size in seen if size != len(content)]
    assert not halves, f"of files with {len(content)} bytes a reader has seen {halves}"


@quotations.of(CheckpointStore.create_file, "A new file, open for writing; closing makes it durable.")
def a_file_is_written_once_and_read_in_parts(store: CheckpointStore) -> None:
    with store.create_file("state/a/x.arrows") as file:
        assert file.write(b"0123456789") == 10
        assert file.tell() == 10
    with store.open("state/a/x.arrows") as file:
        file.seek(4)
        assert file.read(3) == b"456"
    assert raises(AlreadyExists, lambda: store.create_file("state/a/x.arrows")), "it was created twice"


@quotations.of(CheckpointStore.list, "The files below this folder, at any depth; [] if there is none.")
def a_listing_is_deep_and_relative(store: CheckpointStore) -> None:
    for path in ("state/a/1", "state/b/c/2", "state2/3", "log/4"):
        store.create(path, path.encode())
    listed = sorted(s.path for s in store.list("state"))
    assert listed == ["state/a/1", "state/b/c/2"], f"below state/ are a/1 and b/c/2, and listed are {listed}"
    assert store.list("nothing") == [], "a folder that is not there has files"


@quotations.of(CheckpointStore.read, "Raises FileNotFoundError.")
def what_is_not_there_is_not_found(store: CheckpointStore) -> None:
    assert raises(FileNotFoundError, lambda: store.read("log/9.json")), "read() finds what is not there"
    assert raises(FileNotFoundError, lambda: store.open("log/9.json")), "open() finds what is not there"
    store.delete(["log/9.json"])


@quotations.of(CheckpointStore.create, "Make this file, durably, if it is not there")
def names_may_hold_what_uids_hold(store: CheckpointStore) -> None:
    names = ["a b", "ä€", "100%", "x%2Fy", "=,;'"]
    for name in names:
        store.create(f"state/{name}", name.encode())
    listed = sorted(s.path for s in store.list("state"))
    assert listed == sorted(f"state/{name}" for name in names), f"created are {names}, and listed {listed}"
    for name in names:
        assert store.read(f"state/{name}") == name.encode(), f"state/{name} has another content"


STORE_CHECKS: Sequence[Callable[[CheckpointStore], None]] = (
    create_makes_a_file_that_is_there_at_once,
    create_never_replaces,
    of_many_creators_one_wins,
    nobody_sees_half_a_file,
    a_file_is_written_once_and_read_in_parts,
    a_listing_is_deep_and_relative,
    what_is_not_there_is_not_found,
    names_may_hold_what_uids_hold,
)
