"""Names of data files, and which of them belong to no checkpoint any more.

    onceflow/<lineage>.<uid>/0000012/0000012345.000003.0001.000007.3f2a9c01.parquet
                             |       |          |      |    |      random: Spark may run a task twice at once
                             |       |          |      |    the writer's next number
                             |       |          |      the subtask
                             |       |          the attempt
                             |       the checkpoint after which it was begun
                             that, by thousands: so what is new is found without listing what is old

No two writers ever write the same name.
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.connectors.tables.file_store import FileStore

_PER_FOLDER = 1_000


@dataclass(frozen=True, slots=True)
class FileNames:
    """The data files of one sink of one job: `ledger` is made of the job's lineage and the sink's uid;
    `folder` is where files of all jobs are, in the table's."""

    ledger: str
    folder: str = "onceflow"

    def name(self, after_id: int, attempt: int, subtask: int, number: int, token: str) -> str:
        """The path, in the table's folder, of a file that is begun after checkpoint `after_id`."""
        name = f"{after_id:010d}.{attempt:06d}.{subtask:04d}.{number:06d}.{token}.parquet"
        return f"{self._folder(after_id)}/{name}"

    def orphans(self, store: FileStore, restored_id: int, attempt: int) -> list[str]:
        """Files of earlier attempts that no commit has named or ever will.

        `attempt` began with checkpoint `restored_id`, and what that one promised is committed. What an
        earlier attempt began to write after that checkpoint is in none: it is written again. What was begun
        before it is part of it, or of an earlier one. Later attempts are left alone. Raises OSError.
        """
        found = []
        of_ledger = f"{self.folder}/{self.ledger}"
        for folder in store.names(of_ledger):
            if not folder.isdecimal() or int(folder) < restored_id // _PER_FOLDER:
                continue
            for name in store.names(f"{of_ledger}/{folder}"):
                parts = name.split(".")
                is_ours = len(parts) == 6 and all(part.isdecimal() for part in parts[:4])
                if is_ours and int(parts[0]) >= restored_id and int(parts[1]) < attempt:
                    found.append(f"{of_ledger}/{folder}/{name}")
        return found

    def _folder(self, after_id: int) -> str:
        return f"{self.folder}/{self.ledger}/{after_id // _PER_FOLDER:07d}"


def ledger_name(lineage: str, uid: str) -> str:
    """The name under which a sink's commits are kept in a table: no other job's are under it."""
    return f"{lineage}.{uid}"
