"""A real HDFS for tests: one name node and one data node in a process of their own."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from onceflow.connectors.kafka.embedded.ports import free_port
from tests.java_server import JavaServer


class HdfsServer(JavaServer):
    """A name node on a port of loopback. What it has answered survives its kill."""

    program = "hadoop-3.4.1"
    environment: Mapping[str, str] = {}
    options: Mapping[str, Any] = {}

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()
        self._details = self.folder / "details.json"
        self._is_new = True

    def command(self) -> Sequence[str]:
        self._details.unlink(missing_ok=True)
        is_new, self._is_new = self._is_new, False
        return [
            *("-Xms128m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
            "org.apache.hadoop.test.MiniDFSClusterManager",
            *(["-format"] if is_new else []),
            *("-nnport", str(self.port), "-datanodes", "1", "-writeDetails", str(self._details)),
            *("-D", "dfs.permissions.enabled=false"),
            # A data node keeps room for a whole block of each file that a killed writer has left open, until
            # its lease ends: of 128 MB, as is usual, a few hundred fill a disk.
            *("-D", "dfs.blocksize=4194304"),
        ]

    def answers(self) -> bool:
        return self._details.exists()

    def stop(self) -> None:
        """It is away, at once."""
        self.kill()

    def new_folder(self) -> str:
        """The URL of a folder that is not there."""
        return f"hdfs://127.0.0.1:{self.port}/{uuid.uuid4().hex}"
