"""HdfsCheckpointFiles: what the name node may answer to a rename. The contract itself: test_store.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onceflow.runtime.checkpoint.hdfs_files import HdfsCheckpointFiles
from onceflow.runtime.checkpoint.log import CheckpointLog, JobCreated
from onceflow.runtime.checkpoint.remote_store import RemoteStore
from onceflow.runtime.checkpoint.store import AlreadyExists
from onceflow.runtime.errors import Indeterminate, Unavailable

pytest.importorskip("hdfs_native")
JAVA = "\n\tat org.apache.hadoop.hdfs.server.namenode.FSDirRenameOp.unprotectedRenameTo(FSDirRenameOp.java:9)"


class Client:
    """A name node that renames, and whose answer may be lost: then the call comes a second time."""

    def __init__(self, loses_answers: bool = False, denies: bool = False, has_nodes: bool = True) -> None:
        self.files: dict[str, bytes] = {}
        self.loses_answers = loses_answers
        self.denies = denies
        self.has_nodes = has_nodes

    def create(self, path: str, write_options: Any) -> Any:
        if self.denies:
            raise PermissionError("Permission denied: user=nobody" + JAVA)
        if not self.has_nodes:
            raise RuntimeError("written to 0 of the 1 minReplication nodes" + JAVA)
        files = self.files

        class File:
            def write(self, content: bytes) -> None:
                files[path] = content

            def __enter__(self) -> File:
                return self

            def __exit__(self, *_: object) -> None:
                pass

        return File()

    def rename(self, old: str, new: str, overwrite: bool) -> None:
        assert not overwrite
        for _ in range(2 if self.loses_answers else 1):
            if old not in self.files:
                raise FileNotFoundError(f"rename source {old} is not found." + JAVA)
            if new in self.files:
                raise FileExistsError(f"rename destination {new} already exists" + JAVA)
            self.files[new] = self.files.pop(old)

    def delete(self, path: str, recursive: bool) -> bool:
        return self.files.pop(path, None) is not None

    def read(self, path: str) -> Any:
        return SimpleNamespace(read=lambda: self.files[path])

    def list_status(self, path: str, recursive: bool) -> list[Any]:
        return [
            SimpleNamespace(path=name, length=len(content), modification_time=0, isdir=False)
            for name, content in self.files.items()
            if name.startswith(f"{path}/")
        ]


def store_on(client: Client) -> RemoteStore:
    return RemoteStore(HdfsCheckpointFiles(client), "/ck", "hdfs://host/ck", patience_s=0.1)


def test_a_rename_whose_answer_was_lost_is_unknown_and_the_log_finds_its_own_entry() -> None:
    client = Client(loses_answers=True)
    with pytest.raises(Indeterminate, match="can't tell whether hdfs://host/ck/log/1 was created"):
        store_on(client).create("log/1", b"mine")
    assert client.files == {"/ck/log/1": b"mine"}
    assert CheckpointLog(store_on(Client(loses_answers=True)), 0).append(JobCreated("job", "l", 1)) == 0


def test_who_comes_second_leaves_the_first_and_nothing_of_his_own() -> None:
    client = Client()
    store_on(client).create("log/1", b"first")
    with pytest.raises(AlreadyExists):
        store_on(client).create("log/1", b"second")
    assert client.files == {"/ck/log/1": b"first"}


def test_what_is_denied_before_the_rename_is_not_done_and_said_in_one_line() -> None:
    with pytest.raises(Unavailable) as caught:
        store_on(Client(denies=True)).create("log/1", b"x")
    assert str(caught.value) == "can't write hdfs://host/ck/log/1: Permission denied: user=nobody"


def test_an_answer_that_the_client_has_no_error_for_passes_like_any_other() -> None:
    """No data node takes a block, or the name node is in safe mode."""
    with pytest.raises(Indeterminate, match=r"was created: written to 0 of the 1 minReplication nodes$"):
        store_on(Client(has_nodes=False)).create("log/1", b"x")
