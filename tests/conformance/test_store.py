"""Checkpoint stores against their contract; two real processes race for the same files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.store import CheckpointStore, DistantStore
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.errors import OptionError, Retryable
from onceflow.runtime.testing.choices import ReplayedChoices
from onceflow.runtime.testing.faults import FaultyStore
from onceflow.testing.kit import StoreKit
from tests.azure_server import AzureServer
from tests.hdfs_server import HdfsServer
from tests.s3_server import S3Server, gateway


class TestLocalPath(StoreKit):
    def store(self) -> CheckpointStore:
        return open_store(f"{self.folder}/not/there/yet")


class TestFileUrl(StoreKit):
    def store(self) -> CheckpointStore:
        return open_store(f"file://{self.folder}")


class TestMemory(StoreKit):
    in_new_processes = False

    def store(self) -> CheckpointStore:
        return MemoryStore()


class TestWithoutFaults(StoreKit):
    in_new_processes = False

    def store(self) -> CheckpointStore:
        return FaultyStore(MemoryStore(), ReplayedChoices([]))


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server(gateway()) as server:
        yield server


class TestOnS3(StoreKit):
    server: ClassVar[S3Server]

    @pytest.fixture(autouse=True)
    def serve(self, server: S3Server) -> None:
        type(self).server = server  # the kit makes other objects of the class
        self.settings["options"] = server.options
        self.settings["bucket"] = server.new_bucket()

    def store(self) -> CheckpointStore:
        options: dict[str, Any] = self.settings["options"]
        return open_store(f"s3://{self.settings['bucket']}/some/where", options)

    def test_ranges_are_read(self) -> None:
        read_ranges(self.store())


def read_ranges(store: CheckpointStore) -> None:
    """What a DistantStore says of `read_range`."""
    assert isinstance(store, DistantStore)
    with store.create_file("state/ranges") as file:
        file.write(bytes(range(256)) * 64)
    content = bytes(range(256)) * 64
    for offset, size in ((0, 10), (300, 1_000), (16_380, 4), (16_380, 99), (16_384, 5), (20_000, 5)):
        assert store.read_range("state/ranges", offset, size) == content[offset : offset + size], offset
    with pytest.raises(FileNotFoundError):
        store.read_range("state/nothing", 0, 5)


@pytest.fixture(scope="module")
def azure() -> Iterator[AzureServer]:
    with AzureServer() as server:
        yield server


class TestOnAzure(StoreKit):
    @pytest.fixture(autouse=True)
    def serve(self, azure: AzureServer) -> None:
        self.settings["options"] = azure.options
        self.settings["url"] = azure.new_folder()

    def store(self) -> CheckpointStore:
        return open_store(str(self.settings["url"]), self.settings["options"])

    def test_ranges_are_read(self) -> None:
        read_ranges(self.store())


@pytest.fixture(scope="module")
def hdfs() -> Iterator[HdfsServer]:
    with HdfsServer() as server:
        yield server


class TestOnHdfs(StoreKit):
    @pytest.fixture(autouse=True)
    def serve(self, hdfs: HdfsServer) -> None:
        self.settings["url"] = hdfs.new_folder()

    def store(self) -> CheckpointStore:
        return open_store(str(self.settings["url"]))

    def test_ranges_are_read(self) -> None:
        read_ranges(self.store())


RACER = """
import sys
from onceflow.runtime.checkpoint.store import AlreadyExists
from onceflow.runtime.checkpoint.store_url import open_store
store = open_store(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for position in range(300):
    try:
        store.create(f"log/{position:010d}.json", sys.argv[2].encode())
        print(position, flush=True)
    except AlreadyExists:
        pass
"""


def test_of_two_processes_exactly_one_creates_each_entry(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [{int(line) for line in racer.communicate(timeout=240)[0].split()} for racer in racers]
    assert not won[0] & won[1]
    assert won[0] | won[1] == set(range(300))
    store = LocalStore(str(tmp_path))
    for name, positions in zip("ab", won, strict=True):
        assert all(store.read(f"log/{n:010d}.json") == name.encode() for n in positions)
    assert len(store.list("log")) == 300, "no temporary file is left"


@pytest.mark.parametrize(
    "url", ["webhdfs://host/x", "http://host/x", "sftp://host/x", "simplecache::s3://bucket/x"]
)
def test_a_store_that_is_not_proven_is_refused_by_name(url: str) -> None:
    with pytest.raises(
        OptionError, match=rf"checkpoints on {url.split('://')[0]}: are not offered.*file:///path"
    ):
        open_store(url)


def test_memory_urls_of_one_name_share_a_store() -> None:
    open_store("memory://shared-by-name").create("log/0.json", b"x")
    assert open_store("memory:shared-by-name").read("log/0.json") == b"x"


def test_a_folder_that_can_not_be_written_is_a_retryable_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file where the folder should be")
    with pytest.raises(Retryable, match="can't write"):
        LocalStore(str(tmp_path)).create("log/0.json", b"x")
