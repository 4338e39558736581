"""The folder queue passes the kit of queues."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from onceflow.runtime.testing.connectors.folder_queue import FolderQueue, add_message
from onceflow.testing.kit import QueueKit

SCHEMA = pa.schema([("n", pa.int64())])


class TestFolderQueue(QueueKit):
    def prepare(self) -> None:
        for n in range(9):
            add_message(Path(self.folder), f"message-{n}", {"n": n})

    def source(self) -> FolderQueue:
        return FolderQueue(self.folder, SCHEMA, splits=3, is_bounded=True)

    def waiting(self) -> int:
        return len(list(Path(self.folder).glob("*.json")))
