"""A real NiFi for tests, of pinned parts from Maven, with a way through it from an input port to an output
port."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
import uuid
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import platformdirs
import pytest
import urllib3

from onceflow.connectors.kafka.embedded.jars import MAVEN_CENTRAL
from onceflow.connectors.kafka.embedded.ports import free_port
from onceflow.connectors.nifi.flow_files import FlowFile, packed
from onceflow.runtime.environment.java import JavaError, find_java

VERSION = "1.18.0"
DEADLINE_S = 480
TTL_S = 4
"""For how long a transaction lives of which NiFi hears nothing."""
_PINS = Path(__file__).parent / "jars" / f"nifi-{VERSION}.json"
_PROTOCOL = {"x-nifi-site-to-site-protocol-version": "1", "Accept": "application/json"}
_PROPERTIES = f"""
nifi.version={VERSION}
nifi.flow.configuration.file=./conf/flow.xml.gz
nifi.flow.configuration.json.file=./conf/flow.json.gz
nifi.flow.configuration.archive.enabled=false
nifi.flowcontroller.autoResumeState=true
nifi.flowcontroller.graceful.shutdown.period=1 sec
nifi.flowservice.writedelay.interval=500 ms
nifi.administrative.yield.duration=1 sec
nifi.bored.yield.duration=10 millis
nifi.authorizer.configuration.file=./conf/authorizers.xml
nifi.login.identity.provider.configuration.file=./conf/login-identity-providers.xml
nifi.templates.directory=./conf/templates
nifi.nar.library.directory=./lib
nifi.nar.library.autoload.directory=./extensions
nifi.nar.working.directory=./work/nar/
nifi.documentation.working.directory=./work/docs/components
nifi.state.management.configuration.file=./conf/state-management.xml
nifi.state.management.provider.local=local-provider
nifi.database.directory=./database_repository
nifi.flowfile.repository.implementation=org.apache.nifi.controller.repository.WriteAheadFlowFileRepository
nifi.flowfile.repository.wal.implementation=org.apache.nifi.wali.SequentialAccessWriteAheadLog
nifi.flowfile.repository.directory=./flowfile_repository
nifi.flowfile.repository.checkpoint.interval=20 secs
nifi.flowfile.repository.always.sync=false
nifi.queue.swap.threshold=20000
nifi.swap.manager.implementation=org.apache.nifi.controller.FileSystemSwapManager
nifi.content.repository.implementation=org.apache.nifi.controller.repository.FileSystemRepository
nifi.content.repository.directory.default=./content_repository
nifi.content.claim.max.appendable.size=50 KB
nifi.content.repository.archive.enabled=false
nifi.content.repository.always.sync=false
nifi.h2.url.append=;LOCK_TIMEOUT=25000;WRITE_DELAY=0;AUTO_SERVER=FALSE
nifi.remote.contents.cache.expiration=30 secs
nifi.web.max.header.size=16 KB
nifi.provenance.repository.implementation=org.apache.nifi.provenance.VolatileProvenanceRepository
nifi.provenance.repository.buffer.size=1000
nifi.components.status.repository.implementation=\
org.apache.nifi.controller.status.history.VolatileComponentStatusRepository
nifi.components.status.repository.buffer.size=1440
nifi.components.status.snapshot.frequency=1 min
nifi.remote.input.host=127.0.0.1
nifi.remote.input.secure=false
nifi.remote.input.http.enabled=true
nifi.remote.input.http.transaction.ttl={TTL_S} sec
nifi.web.war.directory=./lib
nifi.web.http.host=127.0.0.1
nifi.web.jetty.working.directory=./work/jetty
nifi.web.jetty.threads=50
nifi.sensitive.props.key=onceflowonceflow
nifi.sensitive.props.algorithm=NIFI_PBKDF2_AES_GCM_256
nifi.security.user.authorizer=single-user-authorizer
nifi.cluster.is.node=false
"""
_FILES = {
    "authorizers.xml": "<authorizers><authorizer><identifier>single-user-authorizer</identifier><class>"
    "org.apache.nifi.authorization.single.user.SingleUserAuthorizer</class></authorizer></authorizers>",
    "login-identity-providers.xml": "<loginIdentityProviders></loginIdentityProviders>",
    "state-management.xml": "<stateManagement><local-provider><id>local-provider</id><class>"
    "org.apache.nifi.controller.state.providers.local.WriteAheadLocalStateProvider</class>"
    '<property name="Directory">./state/local</property></local-provider></stateManagement>',
    "logback.xml": '<configuration><appender name="O" class="ch.qos.logback.core.ConsoleAppender"><encoder>'
    '<pattern>%d %-5level %logger{30} %msg%n</pattern></encoder></appender><root level="INFO">'
    '<appender-ref ref="O"/></root></configuration>',
    "bootstrap.conf": "",
}


def _library() -> Path:
    """The folder of its parts, fetched once. Skips the test if they can't be had."""
    pins: dict[str, str] = json.loads(_PINS.read_text())
    digest = hashlib.sha256(_PINS.read_bytes()).hexdigest()[:8]
    folder = platformdirs.user_cache_path("onceflow", appauthor=False) / f"nifi-{VERSION}-{digest}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    mirror = os.environ.get("ONCEFLOW_MAVEN_MIRROR", MAVEN_CENTRAL).rstrip("/")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        library = Path(scratch, "lib")
        (library / "bootstrap").mkdir(parents=True)
        for path, sha256 in pins.items():
            in_bootstrap = path.startswith("bootstrap/")
            target = library / ("bootstrap" if in_bootstrap else "") / path.rpartition("/")[2]
            try:
                with urllib.request.urlopen(f"{mirror}/{path.removeprefix('bootstrap/')}", timeout=60) as got:
                    target.write_bytes(got.read())
            except OSError as error:
                pytest.skip(f"NiFi can't be had here: {error}")
            assert hashlib.sha256(target.read_bytes()).hexdigest() == sha256, path
        if not folder.is_dir():
            library.rename(folder)
    return folder


class NifiProcess:
    """A node on a port of loopback, whose folder is gone when it is closed."""

    def __init__(self) -> None:
        library = _library()
        try:
            java = find_java()
        except JavaError as error:
            pytest.skip(f"NiFi can't be had here: {error}")
        self._folder = Path(tempfile.mkdtemp(prefix="onceflow-nifi-"))
        self._http = urllib3.PoolManager(retries=False)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        conf = self._folder / "conf"
        conf.mkdir()
        (self._folder / "extensions").mkdir()
        (self._folder / "lib").symlink_to(library)
        (conf / "nifi.properties").write_text(f"{_PROPERTIES}nifi.web.http.port={port}\n")
        for name, text in _FILES.items():
            (conf / name).write_text(text)
        command = [str(java.executable), "-Xmx512m", "-cp", "conf:lib/*", "-Dapp=NiFi"]
        command += ["-Dnifi.properties.file.path=conf/nifi.properties", "org.apache.nifi.NiFi"]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def __enter__(self) -> Self:
        deadline = time.monotonic() + DEADLINE_S
        while not self._answers():
            assert self._process.poll() is None, self.log()[-3_000:]
            assert time.monotonic() < deadline, self.log()[-3_000:]
            time.sleep(0.5)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def create(self) -> Passage:
        """An input port that leads to an output port."""
        root = self.ask("GET", "/flow/process-groups/root")["processGroupFlow"]["id"]
        new = {"version": 0}
        name = uuid.uuid4().hex[:8]
        ends = {}
        for kind in ("input", "output"):
            port = {"revision": new, "component": {"name": f"{kind}-{name}", "allowRemoteAccess": True}}
            ends[kind] = self.ask("POST", f"/process-groups/{root}/{kind}-ports", port)
        component = {
            end: {"id": ends[kind]["id"], "groupId": root, "type": f"{kind.upper()}_PORT"}
            for end, kind in (("source", "input"), ("destination", "output"))
        }
        made = self.ask(
            "POST", f"/process-groups/{root}/connections", {"revision": new, "component": component}
        )
        for kind, port in ends.items():
            running = {"revision": port["revision"], "state": "RUNNING"}
            self.ask("PUT", f"/{kind}-ports/{port['id']}/run-status", running)
        return Passage(self, ends["input"]["id"], f"output-{name}", made["id"])

    def ask(self, method: str, path: str, value: object = None) -> Any:
        """What NiFi's API answers."""
        body = None if value is None else json.dumps(value)
        return self.send(method, path, body, {"Content-Type": "application/json"}).json()

    def send(self, method: str, path: str, body: str | bytes | None, headers: dict[str, str]) -> Any:
        answer = self._http.request(method, f"{self.url}/nifi-api{path}", body=body, headers=headers)
        assert answer.status < 300, (method, path, answer.status, answer.data[:300])
        return answer

    def _answers(self) -> bool:
        try:
            return self._http.request("GET", f"{self.url}/nifi-api/site-to-site").status == 200
        except (urllib3.exceptions.HTTPError, OSError):
            return False


class Passage:
    """A way through NiFi."""

    def __init__(self, nifi: NifiProcess, input_id: str, port: str, connection_id: str) -> None:
        self._nifi, self._input_id, self.port, self._connection_id = nifi, input_id, port, connection_id

    def put(self, bodies: Iterable[bytes], **attributes: str) -> None:
        """Flow files with these attributes, by site-to-site."""
        sent = b"".join(packed(FlowFile(dict(attributes), body)) for body in bodies)
        base = f"/data-transfer/input-ports/{self._input_id}/transactions"
        made = self._nifi.send("POST", base, b"", _PROTOCOL)
        base += "/" + made.headers["Location"].rpartition("/")[2]
        octets = {**_PROTOCOL, "Content-Type": "application/octet-stream"}
        answer = self._nifi.send("POST", f"{base}/flow-files", sent, {**octets, "Accept": "text/plain"})
        assert answer.data.decode() == str(zlib.crc32(sent))
        self._nifi.send("DELETE", f"{base}?responseCode=12", b"", octets)

    def waiting(self) -> int:
        """How many flow files were not confirmed."""
        found = self._nifi.ask("GET", f"/flow/connections/{self._connection_id}/status")
        return int(found["connectionStatus"]["aggregateSnapshot"]["flowFilesQueued"])
