"""UploadedStore: files are multipart uploads to the keys under which they will be seen, and shown by being
completed.

An upload can be completed once, by any process that knows its id and parts, so a commit that is repeated by
another attempt shows nothing twice. Nobody sees it before, and it costs room until it is completed or
aborted.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from onceflow.connectors.files.written.part import Part
from onceflow.connectors.files.written.uploads import GoneError, Uploads
from onceflow.runtime.errors import DataLossError, Fatal, Retryable

T = TypeVar("T")
PART_BYTES = 8 << 20
"""What is sent at once: S3 takes 5 MiB or more, and 10,000 parts for a file."""
_SENDING_MAX = 4
"""How many parts of a store are on their way at once: above it, writing waits."""


class UploadedStore:
    """An OutputStore on S3, and on what speaks its protocol."""

    keeps_prefixes = True

    def __init__(
        self,
        uploads: Uploads,
        folder: str,
        hidden_folder: str,
        is_ours: Callable[[str], bool],
        at_once: int = 8,
    ) -> None:
        """`folder` and `hidden_folder`: keys' beginnings, without "/" at their ends. `is_ours`: whether the
        sink of this job has given this name. `at_once`: how many files a commit asks for and shows at a time;
        with 1 on the caller's thread."""
        self._uploads = uploads
        self._folder = f"{folder}/" if folder else ""
        self._hidden = f"{hidden_folder}/"
        self._is_ours = is_ours
        self._senders = ThreadPoolExecutor(_SENDING_MAX, "onceflow-upload")
        self._room = threading.BoundedSemaphore(_SENDING_MAX)
        self._at_once = at_once
        self._askers = ThreadPoolExecutor(at_once, "onceflow-commit")

    def describe(self, name: str) -> str:
        return f"s3://{self._uploads.bucket}/{self._folder}{name}"

    def create(self, name: str, hidden: str, attempt: int) -> UploadedFile:
        key = self._folder + name
        return UploadedFile(self, key, Part(name, hidden, 0, attempt), self._begin(key))

    def _begin(self, key: str) -> Future[str]:
        """The id of a new upload. The task's thread does not wait for it: a file begins in each folder with
        each checkpoint, and its rows have room in memory until the store has answered."""
        if self._at_once > 1:
            return self._askers.submit(self._uploads.begin, key)
        begun = Future[str]()
        begun.set_result(self._uploads.begin(key))
        return begun

    def send(self, key: str, upload: Future[str], number: int, content: bytes) -> Future[str]:
        """Upload a part on another thread; waits while too many are on their way."""

        def add() -> str:
            return self._uploads.add(key, upload.result(), number, content)

        self._room.acquire()
        sent = self._senders.submit(add)
        sent.add_done_callback(lambda _: self._room.release())
        return sent

    def put_tail(self, hidden: str, content: bytes) -> None:
        self._uploads.put(self._hidden + hidden, content)

    def notes(self) -> list[str]:
        return self._uploads.names(self._hidden)

    def read_note(self, hidden: str) -> bytes:
        return self._uploads.get(self._hidden + hidden)

    def create_note(self, hidden: str, content: bytes) -> None:
        self._uploads.create(self._hidden + hidden, content)

    def delete_notes(self, hidden: Sequence[str]) -> None:
        self._uploads.delete([self._hidden + name for name in hidden])

    def missing(self, parts: Sequence[Part]) -> Part | None:
        there = self._each(lambda part: self._uploads.is_there(self._folder + part.name, part.upload), parts)
        return next((part for part, is_there in zip(parts, there, strict=True) if not is_there), None)

    def show(self, parts: Sequence[Part]) -> None:
        self._each(lambda part: self._complete(part, part.etags), parts)

    def show_left(self, part: Part) -> None:
        """The order: the tail becomes the last part; the upload is completed with just these parts.

        A writer that was frozen may wake up and send the same part: then completing is refused, since its tag
        is another one, and tried again.
        """
        key, etags = self._folder + part.name, list(part.etags)
        try:
            if part.tail:
                content = self.read_note(part.tail)
                etags.append(self._uploads.add(key, part.upload, len(etags) + 1, content))
        except GoneError:
            self._check_shown(part)
            return
        except FileNotFoundError:
            if self._uploads.is_there(key, part.upload):
                raise DataLossError(
                    f"s3://{self._uploads.bucket}/{self._hidden}{part.tail} is gone, with the last rows of "
                    f"{part.name}: objects below {self._hidden} must stay until the job deletes them"
                ) from None
        self._complete(part, etags)

    def _complete(self, part: Part, etags: Sequence[str]) -> None:
        try:
            self._uploads.complete(self._folder + part.name, part.upload, etags)
        except GoneError:
            self._check_shown(part)

    def _check_shown(self, part: Part) -> None:
        """Its upload is gone: it was completed before, if the file is there."""
        size = self._uploads.size(self._folder + part.name)
        if size is None:
            raise DataLossError(
                f"{self.describe(part.name)}: its upload is gone, and there is no such file. Either somebody "
                "took the file away before its commit was known to be done, or the upload was aborted (by a "
                "lifecycle rule of the bucket?): put the file back, or an empty one if it was taken away"
            )
        if size not in (part.size, 0):
            raise Fatal(
                f"{self.describe(part.name)} has {size} bytes, and {part.size} were written: somebody else's "
                "file has its name; write to another folder"
            )

    def prove_creates(self) -> None:
        name = f"probe-{uuid.uuid4().hex}"
        self.create_note(name, b"")
        try:
            self.create_note(name, b"")
        except FileExistsError:
            self.delete_notes([name])
            return
        raise Fatal(
            f"the store of s3://{self._uploads.bucket} overwrites an object where If-None-Match: * is asked "
            "for, so two drivers could commit at once: use a store that refuses it, as S3 does"
        )

    def mark(self, folder: str, name: str) -> None:
        self._uploads.put(f"{self._folder}{folder}/{name}", b"")

    def shown(self) -> list[str]:
        hidden = self._hidden.removeprefix(self._folder).partition("/")[0] + "/"
        return [name for name in self._uploads.names(self._folder) if not name.startswith(hidden)]

    def take_away(self, names: Sequence[str]) -> None:
        self._uploads.delete([self._folder + name for name in names])

    def cut(self, name: str, size: int) -> bool:
        key = self._folder + name
        if (self._uploads.size(key) or 0) <= size:
            return False
        self._uploads.put(key, self._uploads.get(key)[:size])
        return True

    def make_names_durable(self) -> None:
        """They are."""

    def leftovers(self) -> Sequence[tuple[str, str]]:
        begun = self._uploads.begun(self._folder)
        return [(key, upload) for key, upload in begun if self._is_ours(key.removeprefix(self._folder))]

    def abandon(self, leftovers: Sequence[tuple[str, str]]) -> None:
        for key, upload in leftovers:
            self._uploads.abort(key, upload)

    def close(self) -> None:
        self._senders.shutdown(wait=False, cancel_futures=True)
        self._askers.shutdown(wait=False, cancel_futures=True)

    def _each(self, call: Callable[[Part], T], parts: Sequence[Part]) -> list[T]:
        """What the call gives for each part: a request takes as long as the way there and back, and a commit
        may have a thousand. Raises what one has raised, once all that were under way have ended: tried again,
        it must not meet itself."""
        if self._at_once == 1:
            return [call(part) for part in parts]
        calls = [self._askers.submit(call, part) for part in parts]
        _, waiting = wait(calls, return_when=FIRST_EXCEPTION)
        for each in waiting:
            each.cancel()
        wait(calls)
        failed = [each for each in calls if not each.cancelled() and each.exception()]
        return [each.result() for each in failed or calls]


class UploadedFile:
    """A HiddenFile. What does not fill a part waits in memory."""

    closed = False

    def __init__(self, store: UploadedStore, key: str, part: Part, upload: Future[str]) -> None:
        self._store = store
        self._key = key
        self._part = part
        self._upload = upload
        self._tail = bytearray()
        self._size = 0
        self._sent: list[Future[str]] = []
        self._lock = threading.Lock()
        """Around finishing, which an aborted checkpoint's and the next one's staging may both do."""
        self._is_finished = False

    @property
    def size(self) -> int:
        return self._size

    def write(self, content: bytes) -> int:
        self._tail += content
        self._size += len(content)
        while len(self._tail) >= PART_BYTES:
            self._send(bytes(self._tail[:PART_BYTES]))
            del self._tail[:PART_BYTES]
        return len(content)

    def flush(self) -> None:
        """See HiddenFile."""

    def cut(self, checkpoint_id: int) -> Callable[[], Part]:
        content, sent, size = bytes(self._tail), list(self._sent), self._size
        tail = f"{self._part.hidden}.tail-{checkpoint_id:010d}" if content else ""

        def make_durable() -> Part:
            if tail:
                self._store.put_tail(tail, content)
            return self._as_of(size, sent, tail)

        return make_durable

    def finish(self) -> Part:
        with self._lock:
            if not self._is_finished:
                if self._tail or not self._sent:
                    self._send(bytes(self._tail))
                    self._tail.clear()
                self._is_finished = True
        return self._as_of(self._size, self._sent, "")

    def close(self) -> None:
        """The next attempt aborts the upload, which has to be there for it to find."""
        self._tail.clear()
        wait([self._upload])

    def _send(self, content: bytes) -> None:
        self._sent.append(self._store.send(self._key, self._upload, len(self._sent) + 1, content))

    def _as_of(self, size: int, sent: Sequence[Future[str]], tail: str) -> Part:
        part = self._part
        try:
            etags = tuple(each.result() for each in sent)
        except GoneError:
            raise Retryable(
                f"{self._store.describe(part.name)}: its upload was aborted by somebody: leave uploads "
                "alone while the job runs"
            ) from None
        return Part(part.name, part.hidden, size, part.attempt, self._upload.result(), etags, tail)
