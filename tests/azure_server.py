"""An Azure Blob Storage for tests: Azurite (npm), Microsoft's emulator, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any, Self

import fsspec
import platformdirs
import pytest
from tenacity import retry, stop_after_delay, wait_fixed

from onceflow.connectors.kafka.embedded.ports import free_port

_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every Azurite, which its documentation names."""
_DEADLINE_S = 240


def azurite() -> Path | None:
    """Its program; None: it is not here."""
    cached = platformdirs.user_cache_path("onceflow", appauthor=False) / "azurite"
    given = os.environ.get("ONCEFLOW_AZURITE")
    found = Path(given) if given else cached / "node_modules" / ".bin" / "azurite-blob"
    return found if found.exists() and shutil.which("node") else None


class AzureServer:
    """A server on a port of loopback. It writes down what it has answered some seconds later, so it is ended
    by a signal that it hears."""

    def __init__(self) -> None:
        """Skips the test if there is no Azurite."""
        program = azurite()
        if program is None:
            pytest.skip("there is no Azurite here: .ci/run says how to install it")
        self._folder = Path(tempfile.mkdtemp(prefix="onceflow-azure-"))
        self.port = free_port()
        place = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--location", str(self._folder)]
        quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        self._command = ["node", str(program), *place, *quiet]
        self.start()

    def start(self) -> None:
        """Start it, again after `stop` with what was there, and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, cwd=self._folder, start_new_session=True
            )
        self._wait()

    @retry(wait=wait_fixed(0.1), stop=stop_after_delay(_DEADLINE_S), reraise=True)
    def _wait(self) -> None:
        assert self._process.poll() is None, (self._folder / "log").read_text()
        assert "successfully listens" in (self._folder / "log").read_text()
        fsspec.filesystem("abfs", **self.options).ls("")

    def stop(self) -> None:
        """It is away, in a moment."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def options(self) -> dict[str, Any]:
        """What fsspec's file system is made with."""
        return {"connection_string": self.environment["AZURE_STORAGE_CONNECTION_STRING"]}

    @property
    def environment(self) -> dict[str, str]:
        """The same for a process, as clients of Azure read it."""
        endpoint = f"http://127.0.0.1:{self.port}/{_ACCOUNT}"
        account = f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY}"
        return {"AZURE_STORAGE_CONNECTION_STRING": f"{account};BlobEndpoint={endpoint};"}

    def new_folder(self) -> str:
        """The URL of a folder in an empty container."""
        container = f"c{uuid.uuid4().hex}"
        fsspec.filesystem("abfs", **self.options).mkdir(container)
        return f"abfs://{container}/some/where"

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
