"""Two schema registries with Confluent's interface: the one that onceflow brings, and one that is not ours as
its judge, Apicurio, fetched once from a Maven repository."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onceflow.connectors.kafka.embedded.jars import MAVEN_CENTRAL, default_cache_dir
from onceflow.connectors.kafka.embedded.registry import EmbeddedRegistry
from onceflow.runtime.environment.java import JavaError, find_java
from tests.server_container import Container, container_of

VERSION = "3.3.3"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
FILE = f"io/apicurio/apicurio-registry-app/{VERSION}/apicurio-registry-app-{VERSION}-all.tar.gz"
JAVA_NEEDED = 21
START_S = 480


def java() -> str:
    """A Java that is new enough for Apicurio: the default one, or another that is installed."""
    homes = [*map(str, sorted(Path("/usr/lib/jvm").glob("*"), reverse=True))]
    for home in [None, *homes]:
        try:
            found = find_java(None if home is None else {"JAVA_HOME": home})
        except JavaError:
            continue
        if int(found.version.split(".")[0].split("-")[0]) >= JAVA_NEEDED:
            return str(found.executable)
    pytest.skip(f"Apicurio needs Java {JAVA_NEEDED} or newer, and there is none")


def jar() -> Path:
    folder = default_cache_dir() / f"apicurio-{VERSION}-{SHA256[:8]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-apicurio-", dir=folder.parent) as scratch:
            packed = Path(scratch) / "all.tar.gz"
            url = os.environ.get("ONCEFLOW_MAVEN_MIRROR", MAVEN_CENTRAL) + FILE
            try:
                with urllib.request.urlopen(url, timeout=240) as response, packed.open("wb") as file:
                    shutil.copyfileobj(response, file)
            except OSError as error:
                pytest.skip(f"Apicurio can't be fetched from {url}: {error}")
            assert hashlib.sha256(packed.read_bytes()).hexdigest() == SHA256
            with tarfile.open(packed) as archive:
                archive.extractall(Path(scratch) / "all", filter="data")
            (Path(scratch) / "all").rename(folder)
    return folder / "quarkus-run.jar"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module", params=["onceflow", "apicurio"])
def registry(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty registry. It answers when the test begins."""
    folder = tmp_path_factory.mktemp("registry")
    if request.param == "onceflow":
        with EmbeddedRegistry(folder) as ours:
            yield ours.url
    else:
        with apicurio(folder) as url:
            yield url


@contextmanager
def apicurio(folder: Path) -> Iterator[str]:
    port = free_port()
    container = container_of("registry", f"Apicurio {VERSION}", [port])
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    if container is not None:
        container.start()
        try:
            wait_until_it_answers(url, container, container.log)
            yield url
        finally:
            container.close()
        return
    settings = {
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
        "QUARKUS_MANAGEMENT_PORT": str(free_port()),
    }
    command = [java(), "-Xmx300m", "-XX:TieredStopAtLevel=1", "-jar", str(jar())]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **settings}, stdout=log, stderr=log
        )
    try:
        wait_until_it_answers(url, process, (folder / "log").read_text)
        yield url
    finally:
        process.kill()
        process.wait(120)


def wait_until_it_answers(
    url: str, process: subprocess.Popen[bytes] | Container, log: Callable[[], str]
) -> None:
    deadline = time.monotonic() + START_S
    while not answers(f"{url}/subjects"):
        assert process.poll() is None, log()[-3000:]
        assert time.monotonic() < deadline, log()[-3000:]
        time.sleep(0.1)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False
