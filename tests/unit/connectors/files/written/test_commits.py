"""A commit is cut off at each of its calls: what anybody sees at any moment, and what is there in the end.

The engine is played: two writers, checkpoints, and after a crash a new attempt, which commits what the last
durable checkpoint promised, and writes anew what came behind it. Files go on over checkpoints.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.files.buckets import buckets
from onceflow.connectors.files.json_lines import JsonLines
from onceflow.connectors.files.rolling import RollPolicy
from onceflow.connectors.files.written import uploaded_store
from onceflow.connectors.files.written.commits import OutputCommits
from onceflow.connectors.files.written.compaction import CompactPolicy
from onceflow.connectors.files.written.folder_files import LocalFiles
from onceflow.connectors.files.written.joining import SmallFiles
from onceflow.connectors.files.written.open_store import is_name_of
from onceflow.connectors.files.written.output_store import OutputStore
from onceflow.connectors.files.written.plan import Promise
from onceflow.connectors.files.written.renamed_store import RenamedStore
from onceflow.connectors.files.written.uploaded_store import UploadedStore
from onceflow.connectors.files.written.writer import PartsWriter, WriterSettings
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Committable, NoFiles, SinkContext
from onceflow.runtime.errors import DataLossError, Fatal, Fenced, Retryable
from onceflow.runtime.records import WATERMARK_MAX_MS, Records
from tests.simulated_uploads import SimulatedUploads

MEMORY = Path("/dev/shm")
SCHEMA = pa.schema([("n", pa.int64())])
LINEAGE, UID, HIDDEN = "3f2a9c01deadbeef", "out", ".onceflow"
CHECKPOINTS, ROWS, SUBTASKS = 4, 6, 2
SETTINGS = WriterSettings(
    JsonLines(),
    buckets(lambda batch: [f"odd={n % 2}" for n in batch["n"].to_pylist()], "test"),
    RollPolicy(size=40, on_checkpoint=False, interval="20 ms"),  # 4 or 5 rows, or two checkpoints
    open_files_max=10,
)
AS_THEY_ARE = SmallFiles(None, JsonLines(), SCHEMA)
JOINED = CompactPolicy(checkpoints=3, size=150)
"""Files of two or three checkpoints become one: in each folder a checkpoint has 60 to 72 bytes."""


class CrashError(BaseException):
    """The process is gone."""


@dataclass
class Crashing:
    """Passes calls on to an object, and crashes after one of them: so before the next one."""

    to: Any
    at: int | None
    on_call: Callable[[], None] = lambda: None
    calls: int = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.to, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            number, self.calls = self.calls, self.calls + 1
            result = found(*arguments, **named)
            self.on_call()
            if number == self.at:
                raise CrashError
            return result

        return call


@dataclass
class Folder:
    """The folder of a sink on this machine, seen by one who lists all the time."""

    path: Path
    taken: dict[str, bytes] = field(default_factory=dict)
    """What he took away as soon as he saw it, if he does."""
    takes_away: bool = False
    seen: dict[str, bytes] = field(default_factory=dict)

    def open(self, calls: Callable[[Any], Any]) -> OutputStore:
        hidden = self.path / HIDDEN / f"{LINEAGE}.{UID}"
        return RenamedStore(calls(LocalFiles()), str(self.path), str(hidden))

    def files(self) -> dict[str, bytes]:
        return dict(self._files_below(str(self.path), ""))

    def _files_below(self, folder: str, inside: str) -> Iterator[tuple[str, bytes]]:
        """The names and contents of files. Each folder is listed once: somebody looks a hundred thousand
        times here, and Path.rglob lists it three times."""
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and entry.name != HIDDEN:
                    yield from self._files_below(entry.path, f"{inside}{entry.name}/")
                elif entry.name.endswith(".jsonl"):
                    yield f"{inside}{entry.name}", Path(entry.path).read_bytes()

    def remove(self, name: str) -> None:
        (self.path / name).unlink()

    def look(self) -> None:
        """Files are whole, stay, and stay as they are."""
        now = self.files()
        assert all(content.endswith(b"\n") for content in now.values()), now
        assert not now.keys() & self.taken.keys(), "a file that was taken away is there again"
        for name, content in self.seen.items():
            assert self.takes_away or now.get(name) == content, f"{name} changed or vanished"
        self.seen = now
        if self.takes_away:
            for name in now:
                self.taken[name] = now[name]
                self.remove(name)

    def rows(self) -> Counter[int]:
        lines = b"".join([*self.files().values(), *self.taken.values()]).splitlines()
        return Counter(int(line[5:-1]) for line in lines)


@dataclass
class Bucket(Folder):
    """The same on S3."""

    uploads: SimulatedUploads = field(default_factory=SimulatedUploads)

    def open(self, calls: Callable[[Any], Any]) -> OutputStore:
        is_ours = lambda name: is_name_of(name, UID, LINEAGE)  # noqa: E731
        return UploadedStore(calls(self.uploads), "here", f"here/{HIDDEN}/{LINEAGE}.{UID}", is_ours, 1)

    def files(self) -> dict[str, bytes]:
        names = [name for name in self.uploads.names("here/") if not name.startswith(HIDDEN)]
        return {name: self.uploads.objects[f"here/{name}"] for name in names}

    def remove(self, name: str) -> None:
        self.uploads.delete([f"here/{name}"])


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory, where nothing waits for a disk."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as folder:
        yield Path(folder)


def writers(
    store: OutputStore, attempt: int, restored: int, clock: ManualClock, settings: WriterSettings = SETTINGS
) -> list[PartsWriter]:
    contexts = [
        SinkContext("job", LINEAGE, UID, n, SUBTASKS, attempt, restored, NoFiles(), clock, SCHEMA)  # type: ignore[arg-type]
        for n in range(SUBTASKS)
    ]
    return [PartsWriter(context, settings, store) for context in contexts]


def records(numbers: Sequence[int]) -> Records:
    return Records(pa.RecordBatch.from_pylist([{"n": n} for n in numbers], SCHEMA))


def promises(committables: Sequence[Committable]) -> list[Promise]:
    return [Promise.from_json(each.payload) for each in committables]


class Job:
    """The engine's part. `durable`: the manifests."""

    def __init__(self, folder: Folder, policy: CompactPolicy | None = None) -> None:
        self.folder = folder
        self.small_files = SmallFiles(policy, JsonLines(), SCHEMA)
        self.settings = SETTINGS
        if policy is not None:
            self.settings = replace(SETTINGS, roll=RollPolicy(size=40), joins=True)
        self.clock = ManualClock(1_000)
        self.durable: list[list[Committable]] = []
        self.attempt = 0
        self.zombies: list[PartsWriter] = []

    def run(self, at: int | None = None) -> int:
        """One attempt, whose committer crashes there; how many calls it made."""
        self.attempt += 1
        crashing: list[Crashing] = []

        def calls(to: Any) -> Any:
            crashing.append(Crashing(to, at, self.folder.look))
            return crashing[0]

        try:
            commits = OutputCommits(self.folder.open(calls), self.attempt, None, self.small_files)
            restored = len(self.durable)
            if restored:
                self._commit(commits, restored)
            opened = self.folder.open(lambda to: to)
            made = writers(opened, self.attempt, restored, self.clock, self.settings)
            try:
                self._go_on(commits, made, restored)
            except CrashError:
                self.zombies += made
                raise
        except CrashError:
            pass
        return crashing[0].calls

    def _go_on(self, commits: OutputCommits, made: list[PartsWriter], restored: int) -> None:
        for checkpoint_id in range(restored + 1, CHECKPOINTS + 1):
            for subtask, writer in enumerate(made):
                first = (checkpoint_id * SUBTASKS + subtask) * ROWS
                writer.write(records(range(first, first + ROWS)))
                if checkpoint_id == CHECKPOINTS:
                    writer.on_watermark(WATERMARK_MAX_MS)
            self.clock.advance(10)
            self.durable.append([writer.pre_commit(checkpoint_id).stage() for writer in made])
            self._commit(commits, checkpoint_id)
            for writer in made:
                writer.commit(checkpoint_id)
            for zombie in self.zombies:  # frozen slots wake up, and write on
                with contextlib.suppress(Retryable):
                    zombie.write(records([1_000_000 + checkpoint_id]))
                    zombie.pre_commit(checkpoint_id).stage()

    def _commit(self, commits: OutputCommits, checkpoint_id: int) -> None:
        if commits.last_committed() != checkpoint_id:
            commits.commit(checkpoint_id, promises(self.durable[checkpoint_id - 1]))


EXPECTED = Counter(range(SUBTASKS * ROWS, (CHECKPOINTS + 1) * SUBTASKS * ROWS))


def new_folder(kind: str, path: Path, takes_away: bool) -> Folder:
    made = (Folder if kind == "here" else Bucket)(path, takes_away=takes_away)
    path.mkdir()
    return made


POLICIES = pytest.mark.parametrize("policy", [None, JOINED], ids=["as they are", "joined"])


@POLICIES
@pytest.mark.parametrize("takes_away", [False, True], ids=["files stay", "files are taken away"])
@pytest.mark.parametrize("kind", ["here", "s3"])
def test_a_crash_at_any_call_leaves_each_row_once(
    kind: str, takes_away: bool, policy: CompactPolicy | None, tmp_path: Path
) -> None:
    calls = Job(new_folder(kind, tmp_path / "calm", takes_away), policy).run()
    assert calls > 40
    crashes = range(calls)
    if takes_away and kind == "s3":
        # Between an upload that is completed and a ledger that knows, a file that is gone can't be told from
        # an upload that was aborted: that is an error, see below.
        crashes = range(0)
    for at in crashes:
        job = Job(new_folder(kind, tmp_path / str(at), takes_away), policy)
        job.run(at)
        job.run()
        assert job.folder.rows() == EXPECTED, f"crash after call {at}"


@POLICIES
@pytest.mark.parametrize("kind", ["here", "s3"])
def test_crash_after_crash_leaves_each_row_once_and_no_upload(
    kind: str, policy: CompactPolicy | None, tmp_path: Path
) -> None:
    for number in range(12):
        job = Job(new_folder(kind, tmp_path / str(number), False), policy)
        for at in range(number, 60, 7):
            job.run(at)
        job.run()
        assert job.folder.rows() == EXPECTED
        if isinstance(job.folder, Bucket):
            job.zombies.clear()
            job.durable.clear()
            calm = OutputCommits(job.folder.open(lambda to: to), job.attempt + 1, None, job.small_files)
            calm.last_committed()
            calm.commit(CHECKPOINTS + 1, [Promise(folders={"odd=1": 0})])
            assert not list(job.folder.uploads.begun("")), "uploads of attempts that are gone are aborted"


def committed(folder: Folder, checkpoint_id: int) -> tuple[OutputCommits, list[Promise]]:
    """A committer that was asked, and what two writers promise."""
    commits = OutputCommits(folder.open(lambda to: to), 1, None, AS_THEY_ARE)
    made = writers(folder.open(lambda to: to), 1, 0, ManualClock())
    for writer in made:
        writer.write(records([2, 4]))
        writer.on_watermark(WATERMARK_MAX_MS)
    promised = promises([writer.pre_commit(checkpoint_id).stage() for writer in made])
    commits.last_committed()
    return commits, promised


@pytest.mark.parametrize("kind", ["here", "s3"])
def test_what_the_driver_does_not_see_ends_the_job_and_shows_nothing(kind: str, tmp_path: Path) -> None:
    """It lies on another machine's disk, or somebody has aborted the upload."""
    folder = new_folder(kind, tmp_path / "out", False)
    commits, promised = committed(folder, 1)
    lost = promised[1].whole[0]
    if isinstance(folder, Bucket):
        folder.uploads.abort(f"here/{lost.name}", lost.upload)
    else:
        next(folder.path.rglob(lost.hidden)).unlink()
    with pytest.raises(DataLossError, match=r"what a slot wrote for .* in checkpoint 1 is not there"):
        commits.commit(1, promised)
    assert folder.files() == {}
    assert commits.last_committed() is None


def test_an_upload_that_is_gone_is_no_file_that_was_shown(tmp_path: Path) -> None:
    """It was there when the commit began. An empty file in its place says that the file was taken away."""
    folder = Bucket(tmp_path)
    commits, promised = committed(folder, 1)
    lost = promised[0].whole[0]
    store = folder.open(lambda to: to)
    store.create_note("committing-0000000001", b"")
    folder.uploads.abort(f"here/{lost.name}", lost.upload)
    with pytest.raises(DataLossError, match="its upload is gone, and there is no such file"):
        commits.commit(1, promised)
    folder.uploads.put(f"here/{lost.name}", b"")
    commits.commit(1, promised)
    assert commits.last_committed() == 1


def test_a_tail_that_is_gone_is_never_left_out(tmp_path: Path) -> None:
    """FLINK-39778: a file without its last rows looks whole."""
    folder = Bucket(tmp_path)
    store = folder.open(lambda to: to)
    (writer, _) = writers(store, 1, 0, ManualClock())
    writer.write(records([2, 4]))
    promised = promises([writer.pre_commit(1).stage()])
    commits = OutputCommits(store, 2, None, AS_THEY_ARE)  # the writer's attempt is over
    commits.last_committed()
    store.delete_notes([promised[0].open[0].tail])
    with pytest.raises(DataLossError, match="is gone, with the last rows of"):
        commits.commit(1, promised)


@pytest.mark.parametrize("kind", ["here", "s3"])
def test_a_committer_that_was_frozen_inside_of_a_commit_is_fenced(kind: str, tmp_path: Path) -> None:
    """It asked, and looked; a newer attempt has committed meanwhile, and knows better what stays open."""
    folder = new_folder(kind, tmp_path / "out", False)
    frozen, promised = committed(folder, 1)
    newer = OutputCommits(folder.open(lambda to: to), 2, None, AS_THEY_ARE)
    store = frozen._store

    class Freezes:
        def __getattr__(self, name: str) -> Any:
            if name == "make_names_durable":
                newer.last_committed()
                newer.commit(1, promised)
            return getattr(store, name)

    frozen._store = Freezes()  # type: ignore[assignment]
    with pytest.raises(Fenced, match="a newer attempt has committed checkpoint 1"):
        frozen.commit(1, promised)
    assert folder.rows() == Counter([2, 4, 2, 4])


@pytest.mark.parametrize("kind", ["here", "s3"])
def test_somebody_elses_file_is_not_replaced(kind: str, tmp_path: Path) -> None:
    folder = new_folder(kind, tmp_path / "out", False)
    commits, promised = committed(folder, 1)
    name = promised[0].whole[0].name
    if isinstance(folder, Bucket):
        pytest.skip("completing replaces what is there: S3 has no upload that does not")
    (folder.path / name).parent.mkdir(parents=True)
    (folder.path / name).write_text("mine\n")
    with pytest.raises(Fatal, match="is there, and was not written by this job"):
        commits.commit(1, promised)
    assert (folder.path / name).read_text() == "mine\n"


def test_a_store_that_overwrites_where_it_must_not_is_refused(tmp_path: Path) -> None:
    class Careless(SimulatedUploads):
        def create(self, key: str, content: bytes) -> None:
            self.put(key, content)

    folder = Bucket(tmp_path, uploads=Careless())
    with pytest.raises(Fatal, match="overwrites an object where If-None-Match"):
        OutputCommits(folder.open(lambda to: to), 1, None, AS_THEY_ARE)


def test_parts_are_as_large_as_s3_wants_them() -> None:
    assert uploaded_store.PART_BYTES >= 5 << 20
