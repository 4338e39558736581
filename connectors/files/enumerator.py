"""FileEnumerator: finds files; in a folder that is watched, new ones while the job runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceflow.connectors.files.file_split import FileSplit
from onceflow.connectors.files.finished_files import FinishedFiles, version_hash
from onceflow.connectors.files.place import FileVersion, Place
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import Json, SplitState
from onceflow.runtime.errors import UsageError

SETTLED_AFTER_MS = 1_000
"""A file that was written so long ago is taken to be whole."""


class FileEnumerator:
    """A SplitEnumerator, a PruningEnumerator and a BoundingEnumerator. A split is a file, or a piece of one.
    All pieces of a file are found at once, so a file of which one was read to its end is known.

    While the folder is watched, a file that may still be written is left alone: on a file system of this
    machine one that was written within the last second, until two looks in a row have found it the same.
    """

    def __init__(
        self,
        place: Place,
        watch_ms: int | None,
        clock: Clock,
        cuts: Callable[[str, int], list[int]],
        is_ended: bool = False,
    ) -> None:
        """`watch_ms` None: what is there at the first start is all there is. `cuts(path, size)`: the
        places at which a file is cut into several splits. `is_ended`: the folder would be watched, and ends
        with the files that are whole at the first start, also at that from a savepoint."""
        self._place = place
        self._watch_ms = watch_ms
        self._clock = clock
        self._cuts = cuts
        self._is_ended = is_ended
        self._seen: dict[str, FileVersion] = {}
        """The new files of the look before."""

    @property
    def discovery_interval_ms(self) -> int | None:
        return None if self._is_ended else self._watch_ms

    def initial_splits(self) -> Sequence[SplitState]:
        files = self._place.files()
        if not files and self._watch_ms is None:
            raise UsageError(
                f"there is no file at {self._place.url}: nothing is to be read. Files that are to come while "
                'the job runs are found with watch="10 s"'
            )
        found = files if self._watch_ms is None else self._settled(files)
        return [split.state() for path, version in found.items() for split in self._splits(path, version)]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return self.discover_unfinished(known, None)

    def discover_unfinished(self, known: frozenset[str], finished: Json) -> Sequence[SplitState]:
        if self.discovery_interval_ms is None:
            return []
        return self._found(known, finished)

    def bounded(self, splits: Sequence[SplitState], finished: Json) -> Sequence[SplitState]:
        """See BoundingEnumerator: a file has its own end, so only those that came since are added."""
        if not self._is_ended:
            return splits
        return [*splits, *self._found(frozenset(split.split_id for split in splits), finished)]

    def _found(self, known: frozenset[str], finished: Json) -> Sequence[SplitState]:
        read = FinishedFiles(finished)
        new: dict[str, FileVersion] = {}
        changed: list[FileSplit] = []
        for path, version in self._place.files().items():
            hash_read = read.read_version(path)
            if hash_read is None and path not in known:
                new[path] = version
            elif hash_read is not None and hash_read != version_hash(version):
                changed.append(FileSplit.changed(path, hash_read))
        settled = self._settled(new).items()
        found = [split for path, version in settled for split in self._splits(path, version)]
        return [state for split in (*changed, *found) if (state := split.state()).split_id not in known]

    def _splits(self, path: str, version: FileVersion) -> list[FileSplit]:
        return FileSplit.of(path, version, self._cuts(path, version.size))

    def _settled(self, new: dict[str, FileVersion]) -> dict[str, FileVersion]:
        """The new files that nobody writes any more. Called once in a look."""
        before, self._seen = self._seen, new
        if not self._place.is_local:
            return new  # an object is there when it is whole
        old_s = (self._clock.now_ms() - SETTLED_AFTER_MS) / 1000
        return {
            path: version
            for path, version in new.items()
            if float(version.version) <= old_s or before.get(path) == version
        }

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            FileSplit.from_state(split).check(self._place)

    def close(self) -> None:
        """Nothing is open."""
