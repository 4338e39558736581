"""State files, copied from one store to another and checked there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from isal import isal_zlib  # zlib's numbers, at four times its speed
from msgspec import structs

from onceflow.runtime.checkpoint.checked_files import Wanted, check_content
from onceflow.runtime.checkpoint.copies import COPY_BYTES_MAX, copy_path, create_copied_file
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError

_COPY_BYTES = 1 << 20


def copy_state(
    source: CheckpointStore,
    target: CheckpointStore,
    manifest: CheckpointManifest,
    folder: str,
    links: bool = False,
    on_healed: Callable[[str], None] = lambda problem: None,
) -> CheckpointManifest:
    """The manifest with its state files copied below `folder` of `target`, and checked there; without output.

    `links`: a large file gets another name instead where both are folders of one file system.
    `on_healed(problem)`: a damaged file was read from its copy. Raises CorruptCheckpointError, with the path
    in `source`, if a file is gone or was altered, and its copy as well; OSError.
    """
    wanted = _wanted(source, manifest)
    paths = {path: f"{folder}/{n:08d}.arrows" for n, path in enumerate(sorted(wanted))}
    linked: dict[str, str] = {}
    for path, new in paths.items():
        if not _is_large(wanted[path]):
            _copy_small(source, wanted[path], target, new, on_healed)
        elif links and isinstance(target, LocalStore) and target.link(source, path, new):
            linked[new] = path
        else:
            _copy_large(source, wanted[path], target, new)
    states = [
        structs.replace(
            handle, tables=tuple(structs.replace(table, path=paths[table.path]) for table in handle.tables)
        )
        for handle in manifest.states
    ]

    def describe(path: str) -> str:
        """What is damaged under its new name is so under the old one, which the user knows."""
        return source.describe(linked[path]) if path in linked else target.describe(path)

    files = StateFiles(target, manifest.attempt, describe=describe)
    for handle in states:
        files.read(handle, handle.key_groups)
    return replace(manifest, states=states, committables=())


def _wanted(source: CheckpointStore, manifest: CheckpointManifest) -> dict[str, list[Wanted]]:
    """The tables in each file, by its path."""
    files = StateFiles(source, manifest.attempt)
    wanted: dict[str, list[Wanted]] = {}
    for handle in manifest.states:
        for table in handle.tables:
            wanted.setdefault(table.path, []).append(Wanted(table, files.where(handle, table)))
    return wanted


def _end(wanted: Sequence[Wanted]) -> int:
    return max(each.table.offset + each.table.size for each in wanted)


def _is_large(wanted: Sequence[Wanted]) -> bool:
    """Whether the file has no second copy; small ones are written twice in each folder."""
    return _end(wanted) > COPY_BYTES_MAX


def _copy_small(
    source: CheckpointStore,
    wanted: Sequence[Wanted],
    target: CheckpointStore,
    new: str,
    on_healed: Callable[[str], None],
) -> None:
    """Nothing is written before the content is known to be whole."""
    path = wanted[0].table.path
    contents: list[bytes] = []
    try:
        contents.append(_read(source, path, wanted))
        content = _whole(contents, wanted)
    except (CorruptCheckpointError, OSError) as error:
        is_known = isinstance(error, CorruptCheckpointError)
        problem = str(error) if is_known else f"{wanted[0].where} can't be read: {error}"
        try:
            contents.append(_read(source, copy_path(path), wanted))
            content = _whole(contents, wanted)
        except (CorruptCheckpointError, OSError):
            raise error from None
        on_healed(f"{problem}; read from its copy")
    with create_copied_file(target, new) as copy:
        copy.write(content)


def _read(source: CheckpointStore, path: str, wanted: Sequence[Wanted]) -> bytes:
    """What there is of the tables' bytes in this file. Raises CorruptCheckpointError if it is gone."""
    pieces, size, end = [], 0, _end(wanted)
    try:
        with source.open(path) as file:
            while content := file.read(end - size):
                pieces.append(content)
                size += len(content)
    except FileNotFoundError:
        raise CorruptCheckpointError(f"{wanted[0].where} is gone") from None
    return b"".join(pieces)


def _whole(contents: Sequence[bytes], wanted: Sequence[Wanted]) -> bytes:
    """Each table from the first of these files in which it is what was written. Raises CorruptCheckpointError
    of the first table that is so in none."""
    whole = bytearray(max(contents, key=len))
    for each in wanted:
        mine = slice(each.table.offset, each.table.offset + each.table.size)
        part = next((c[mine] for c in contents if _has(c[mine], each)), contents[0][mine])
        check_content(each, len(part), isal_zlib.crc32(part))
        whole[mine] = part
    return bytes(whole)


def _has(content: bytes, wanted: Wanted) -> bool:
    try:
        check_content(wanted, len(content), isal_zlib.crc32(content))
    except CorruptCheckpointError:
        return False
    return True


def _copy_large(source: CheckpointStore, wanted: Sequence[Wanted], target: CheckpointStore, new: str) -> None:
    """Checked while it is copied, so that the source's file is named if that is the damaged one."""
    sums, position = _sums(wanted), 0
    try:
        file = source.open(wanted[0].table.path)
    except FileNotFoundError:
        raise CorruptCheckpointError(f"{wanted[0].where} is gone") from None
    with file, create_copied_file(target, new) as copy:
        while content := file.read(_COPY_BYTES):
            for each in sums:
                each.add(position, content)
            copy.write(content)
            position += len(content)
        for each in sums:
            each.check()


def _sums(wanted: Sequence[Wanted]) -> list[_Sum]:
    return [_Sum(each) for each in wanted]


@dataclass(slots=True)
class _Sum:
    """How many bytes of a table there were so far, and their checksum."""

    wanted: Wanted
    size: int = 0
    crc: int = 0

    def add(self, position: int, content: bytes) -> None:
        """Add what these bytes of the file, which begin at `position`, have of the table."""
        table = self.wanted.table
        start, end = max(table.offset - position, 0), table.offset + table.size - position
        mine = memoryview(content)[start : max(start, end)]
        self.size, self.crc = self.size + len(mine), isal_zlib.crc32(mine, self.crc)

    def check(self) -> None:
        """Raises CorruptCheckpointError if this is not what was written."""
        check_content(self.wanted, self.size, self.crc)
