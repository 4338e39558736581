"""Compaction: which small files wait, and which of them are shown as one. Pure: it asks nobody.

A file that has ended in a checkpoint is first put among those that wait, in a folder that nobody reads:

    .onceflow/<lineage>.<uid>/waiting/<form>/<folder>/<name>.waiting

`<form>` stands for the format and the columns that it was written with: what is joined has one. The files
that wait are in the ledger of each commit, so they outlive attempts, programs and a change of the options. A
group of them is shown as one file, under the name of its first one, which no other file ever gets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from onceflow.connectors.files.file_format import FileFormat
from onceflow.connectors.files.rolling import size_bytes
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

HIDDEN = ".onceflow"
_WAITING, _ENDING = "waiting", ".waiting"


@explained
@dataclass(frozen=True)
class CompactPolicy:
    """When the small files of a folder are joined, and seen.

    `checkpoints`: at the latest with this checkpoint after the first of them, that one counted in: 1 joins
    what all subtasks have written in one checkpoint. `size`: before, as soon as they have so many bytes
    together, which is about how large a joined file gets. The end of the input, and the watermark at the end
    of a folder's span of time, join what there is.
    """

    checkpoints: int = 10
    size: str | int = "128 MiB"

    def __post_init__(self) -> None:
        if type(self.checkpoints) is not int or self.checkpoints < 1:
            raise OptionError(
                f"CompactPolicy: checkpoints={self.checkpoints!r}: give a whole number from 1 on"
            )
        if self.size_bytes <= 0:
            raise OptionError(f"CompactPolicy: size={self.size!r} has to be more than 0")

    @cached_property
    def size_bytes(self) -> int:
        """Raises OptionError."""
        return size_bytes(self.size, "size")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A file that waits to be joined: committed, whole, and seen by nobody."""

    name: str
    """Below the folder of what is hidden."""
    size: int
    since: int
    """The checkpoint in which it has ended."""

    @property
    def form(self) -> str:
        return self.name.split("/")[1]

    @property
    def target(self) -> str:
        """The path under which it would be seen alone, below the folder of the sink."""
        return self.name.split("/", 2)[2].removesuffix(_ENDING)

    @property
    def folder(self) -> str:
        return self.target.rpartition("/")[0]

    def as_json(self) -> list[Any]:
        return [self.name, self.size, self.since]


@dataclass(frozen=True, slots=True)
class Group:
    """Files that are shown as one, in their order."""

    target: str
    of: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        return {"target": self.target, "of": list(self.of)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Group:
        return Group(value["target"], tuple(value["of"]))


def form_of(form: FileFormat, schema: pa.Schema) -> str:
    """A short text that only this format with these columns has."""
    told = f"{form!r} {form.ending} {schema.to_string()}"
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def waiting_path(lineage: str, uid: str, form: str, path: str) -> str:
    """Where a file waits that would be seen under this path, below the folder of the sink."""
    return f"{HIDDEN}/{lineage}.{uid}/{_WAITING}/{form}/{path}{_ENDING}"


def waiting(path: str, size: int, checkpoint_id: int) -> Waiting | None:
    """What `waiting_path` has made; None: it is the path of a file that is seen."""
    if not path.startswith(f"{HIDDEN}/"):
        return None
    return Waiting(path.split("/", 2)[2], size, checkpoint_id)


def groups_due(
    files: Sequence[Waiting],
    checkpoint_id: int,
    policy: CompactPolicy | None,
    form: str,
    is_complete: Callable[[str], bool],
) -> list[Group]:
    """What a commit shows of the files that wait, those of its own checkpoint among them, oldest first.

    `form`: that of the program that runs. Files of another one, and all if the program joins none any more,
    are shown as they are. `is_complete`: whether a folder gets no more rows.
    """
    by_folder: dict[tuple[str, str], list[Waiting]] = {}
    for file in files:
        by_folder.setdefault((file.form, file.folder), []).append(file)
    groups = []
    for (of, folder), together in by_folder.items():
        if policy is None or of != form:
            groups += [_group([file]) for file in together]
            continue
        *full, rest = _by_size(together, policy.size_bytes)
        groups += [_group(some) for some in full]
        if rest and (is_complete(folder) or checkpoint_id - rest[0].since + 1 >= policy.checkpoints):
            groups.append(_group(rest))
    return groups


def _by_size(files: Sequence[Waiting], enough: int) -> list[list[Waiting]]:
    """Neighbours that have so many bytes together; the last list has what is left, which may be nothing."""
    found: list[list[Waiting]] = [[]]
    size = 0
    for file in files:
        found[-1].append(file)
        size += file.size
        if size >= enough:
            found.append([])
            size = 0
    return found


def _group(files: Sequence[Waiting]) -> Group:
    return Group(files[0].target, tuple(file.name for file in files))
