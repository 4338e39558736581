"""RemoteStore: what file systems answer, and what it makes of it. The contract itself: test_store.py."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from onceflow.runtime.checkpoint.create_proof import RACERS, prove_create
from onceflow.runtime.checkpoint.log import CheckpointLog, JobCreated, entry_path
from onceflow.runtime.checkpoint.remote_store import RemoteStore
from onceflow.runtime.checkpoint.store import AlreadyExists
from onceflow.runtime.checkpoint.store_url import is_remote, open_store
from onceflow.runtime.errors import Indeterminate, OptionError, Unavailable


class Answering(MemoryFileSystem):
    """Objects in memory, with a conditional put; some calls fail as they are told to."""

    cachable = False
    store: dict[str, Any] = {}  # noqa: RUF012 - of each object: see __init__

    def __init__(self, *failures: Exception, is_done: bool = False) -> None:
        super().__init__()
        self.store = {}
        self.failures = list(failures)
        self.is_done = is_done

    def _fail(self, do: Callable[[], Any]) -> Any:
        if not self.failures:
            return do()
        if self.is_done:
            do()
        raise self.failures.pop(0)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> Any:
        def put() -> None:
            if mode == "create" and self.exists(path):
                raise FileExistsError(path)
            MemoryFileSystem.pipe_file(self, path, value)

        return self._fail(put)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> Any:
        return self._fail(lambda: MemoryFileSystem.cat_file(self, path))


def store_on(fs: Any, said: list[str] | None = None, patience_s: float = 60.0) -> RemoteStore:
    return RemoteStore(
        fs, "/bucket/ck", "s3://bucket/ck", [].append if said is None else said.append, patience_s
    )


def test_a_lost_answer_is_unknown_and_the_log_finds_its_own_entry() -> None:
    store = store_on(Answering(ConnectionResetError("gone"), is_done=True))
    with pytest.raises(Indeterminate, match="can't tell whether s3://bucket/ck/x was created: gone"):
        store.create("x", b"mine")
    with pytest.raises(AlreadyExists):
        store.create("x", b"mine")

    fs = Answering(*[TimeoutError()] * 2, is_done=True)
    log = CheckpointLog(store_on(fs), 0)
    assert log.append(JobCreated("job", "lineage", 1)) == 0, "its own entry, with equal content"


@pytest.mark.parametrize("error", [FileNotFoundError("no such bucket"), PermissionError("denied")])
def test_what_waiting_does_not_change_is_unavailable(error: Exception) -> None:
    with pytest.raises(Unavailable, match="can't write s3://bucket/ck/x"):
        store_on(Answering(error)).create("x", b"")


def test_a_condition_that_is_not_met_is_told_by_the_code_of_s3_too() -> None:
    error, cause = OSError("precondition"), Exception()
    cause.response = {"Error": {"Code": "PreconditionFailed"}}  # type: ignore[attr-defined]
    error.__cause__ = cause
    with pytest.raises(AlreadyExists):
        store_on(Answering(error)).create("x", b"")


def test_a_range_is_what_was_asked_for_and_no_more() -> None:
    store = store_on(Answering())
    store.create("x", b"0123456789")
    parts = [(0, 4), (3, 4), (8, 2), (8, 5), (10, 3), (12, 1), (4, 0)]
    read = [store.read_range("x", offset, size) for offset, size in parts]
    assert read == [b"0123", b"3456", b"89", b"89", b"", b"", b""]
    with pytest.raises(FileNotFoundError):
        store.read_range("y", 0, 1)


def test_a_store_that_is_away_is_asked_again_and_it_is_said() -> None:
    said: list[str] = []
    fs = Answering()
    store = store_on(fs, said)
    store.create("x", b"here")
    fs.failures = [ConnectionRefusedError("refused")] * 2
    assert store.read("x") == b"here"
    assert len(said) == 3
    assert "the checkpoint folder is away, s3://bucket/ck/x: refused" in said[0]
    assert said[-1] == "", "it is back"


def test_so_it_is_of_a_store_that_does_not_answer_a_create() -> None:
    said: list[str] = []
    store = store_on(Answering(ConnectionRefusedError("refused")), said)
    with pytest.raises(Indeterminate):
        store.create("log/7", b"entry")
    assert said == ["the checkpoint folder is away, s3://bucket/ck/log/7: refused; it is asked again"]
    store.create("log/7", b"entry")
    store.create("log/8", b"entry")
    assert said[1:] == [""], "back, and that is said once"


def test_patience_ends() -> None:
    fs = Answering(*[ConnectionRefusedError("refused")] * 3)
    with pytest.raises(OSError, match="refused; asked for"):
        store_on(fs, patience_s=0.2).read("x")


def test_a_file_that_failed_is_not_there() -> None:
    store = store_on(Answering())

    def fail() -> None:
        with store.create_file("state/x") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert store.list("") == []


def test_many_files_are_read_and_those_that_are_gone_left_out() -> None:
    store = store_on(Answering())
    paths = [entry_path(n) for n in range(40)]
    for path in paths[::2]:
        store.create(path, path.encode())
    assert store.read_all(paths) == {path: path.encode() for path in paths[::2]}
    store.delete(paths)
    assert store.list("log") == []


class Racing(Answering):
    """Looks, and then writes, as a library does that has no conditional put: all look before one writes."""

    def __init__(self) -> None:
        super().__init__()
        self._looked = threading.Barrier(RACERS)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> Any:
        if mode == "create":
            if self.exists(path):
                raise FileExistsError(path)
            self._looked.wait()
        MemoryFileSystem.pipe_file(self, path, value)


class Ignoring(Answering):
    """Takes the condition and ignores it."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> Any:
        MemoryFileSystem.pipe_file(self, path, value)


class Locked(Answering):
    """A put at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._one = threading.Lock()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> Any:
        with self._one:
            super().pipe_file(path, value, mode)


@pytest.mark.parametrize("kind", [Racing, Ignoring])
def test_a_create_that_two_can_win_is_refused_at_the_start(kind: type[Answering]) -> None:
    fs = kind()
    with pytest.raises(OptionError, match=r"s3://bucket/ck can't hold checkpoints: \d of 7 writers"):
        prove_create(store_on(fs))
    assert not fs.find("/bucket"), "nothing is left"


def test_a_store_that_does_not_answer_at_the_start_is_a_wrong_setting() -> None:
    with pytest.raises(Unavailable, match="no credentials"):
        prove_create(store_on(Answering(*[ValueError("no credentials")] * 50)))


def test_a_create_that_one_wins_is_proven_and_leaves_nothing() -> None:
    fs = Locked()
    prove_create(store_on(fs))
    assert not fs.find("/bucket")


def test_a_url_without_a_bucket_and_a_protocol_that_nobody_knows_are_refused() -> None:
    with pytest.raises(OptionError, match="has no bucket"):
        open_store("s3://")
    with pytest.raises(OptionError, match="Protocol not known: nonsense"):
        open_store("nonsense://x/y")
    assert is_remote("s3://bucket/x")
    assert not any(map(is_remote, ("/x", "file:///x", "memory://x", "memory:x")))
