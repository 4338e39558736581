"""FileSplit: a file, which version of it, and how far it was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise

from onceflow.connectors.files.finished_files import version_hash
from onceflow.connectors.files.place import FileVersion, StoredFiles
from onceflow.runtime.contracts import SplitState
from onceflow.runtime.errors import DataLossError

_CHANGED = " (changed)"
_ADVICE = (
    "files have to stay as they are once they are there. Write a new one under another name, and rename it "
    "when it is whole; put this one back as it was, or start anew with another checkpoint folder"
)


@dataclass(frozen=True, slots=True)
class FileSplit:
    """The next record is the one `rows` records behind `at`, a place that the file's format can begin
    from."""

    path: str
    size: int
    version: str
    at: int = 0
    begin: int = 0
    """The place where the split begins."""
    rows: int = 0
    row: int = 0
    """How many records were read from the beginning of the file."""
    end: int = 0
    """The place where the next split of the file begins; 0: there is none, it is read to its end."""
    is_changed: bool = False
    """Nothing is read: the file was read to its end before, and is another one now. `version` is the hash of
    the one that was read."""
    constants: Mapping[str, str | None] = field(default_factory=dict)
    """Columns of which all rows of the file have one value, which is not in the file, as text."""

    @staticmethod
    def of(
        path: str,
        version: FileVersion,
        cuts: Sequence[int] = (),
        constants: Mapping[str, str | None] | None = None,
    ) -> list[FileSplit]:
        """A file from its beginning, in pieces that are cut at these places."""
        whole = FileSplit(path, version.size, version.version, constants=constants or {})
        return [replace(whole, at=at, begin=at, end=end) for at, end in pairwise((0, *cuts, 0))]

    @staticmethod
    def changed(path: str, hash_read: int) -> FileSplit:
        """A file that is not any more what was read: whoever reads on refuses it."""
        return FileSplit(path, 0, str(hash_read), is_changed=True)

    @staticmethod
    def from_state(state: SplitState) -> FileSplit:
        return FileSplit(**state.position)

    def state(self) -> SplitState:
        return SplitState(self.split_id, asdict(self))

    @property
    def split_id(self) -> str:
        """The path; of the second piece of a file and those that follow with the place where it begins."""
        return self.path + (_CHANGED if self.is_changed else f" from {self.begin}" if self.begin else "")

    @property
    def file_version(self) -> FileVersion:
        return FileVersion(self.size, self.version)

    def check(self, place: StoredFiles) -> None:
        """Raises DataLossError if the file is not there any more, or not as it was."""
        found = place.version(self.path)
        if self.is_changed:
            if found is not None and str(version_hash(found)) != self.version:
                raise DataLossError(f"{self.path} was read to its end, and was changed since: {_ADVICE}")
            return
        how_far = f"{self.row} records of it were read" if self.row else "it was to be read"
        if found is None:
            raise DataLossError(
                f"{self.path} is gone, and {how_far}: put it back, or start anew with another checkpoint "
                "folder"
            )
        if found != self.file_version:
            was = (
                f"it had {self.size} bytes and has {found.size}"
                if found.size != self.size
                else "written anew"
            )
            raise DataLossError(
                f"{self.path} was changed since it was found ({was}), and {how_far}: {_ADVICE}"
            )
