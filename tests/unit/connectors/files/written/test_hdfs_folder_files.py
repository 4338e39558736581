"""HdfsFiles: what hdfs-native has no error for is waited for. HDFS itself: conformance/test_file_sink.py."""

from __future__ import annotations

import pytest

from onceflow.connectors.files.written.hdfs_folder_files import HdfsFiles
from onceflow.runtime.errors import Unavailable

NO_NODE = "File /a could only be written to 0 of the 1 minReplication nodes.\n\tat X(X.java:9)"


class File:
    def write(self, content: bytes) -> int:
        return len(content)

    def close(self) -> None:
        raise RuntimeError(NO_NODE)


class Hdfs:
    """No data node takes a block; names are answered."""

    def open(self, path: str, mode: str, overwrite: bool) -> File:
        return File()

    def mv(self, old: str, new: str, overwrite: bool) -> None:
        raise FileNotFoundError(old)


def test_a_block_that_no_data_node_takes_is_waited_for() -> None:
    files = HdfsFiles(Hdfs())
    file = files.create("/a")
    assert file.write(b"abc") == 3
    with pytest.raises(Unavailable, match=r"^HDFS: close: File /a .* 1 minReplication nodes\.; it is"):
        files.finish(file)


def test_what_the_client_has_an_error_for_stays_what_it_is() -> None:
    with pytest.raises(FileNotFoundError, match="/old"):
        HdfsFiles(Hdfs()).rename("/old", "/new")
