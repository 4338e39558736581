"""An S3 for tests: versitygw, a real server on a folder, where its program or its container is; else moto, an
emulator from PyPI, in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import fsspec
import platformdirs
from tenacity import retry, stop_after_delay, wait_fixed

from onceflow.connectors.kafka.embedded.ports import free_port
from tests.server_container import Container, container_of, version_of

KEY, SECRET = "onceflow", "onceflow-secret"
_MOTO = """
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app))
"""
# One request at a time: its conditional put looks and then writes, and in two threads both may win.
_DEADLINE_S = 240


def gateway() -> str | None:
    """The program of versitygw; None: it is not here, and moto serves."""
    cached = platformdirs.user_cache_path("onceflow", appauthor=False) / "versitygw"
    return os.environ.get("ONCEFLOW_VERSITYGW") or (
        str(cached) if cached.exists() else shutil.which("versitygw")
    )


class S3Server:
    """A server on a port of loopback, with buckets that are gone when it is closed."""

    def __init__(self, program: str | None = None) -> None:
        """`program`: versitygw; None: moto. A container comes before both."""
        self._folder = Path(tempfile.mkdtemp(prefix="onceflow-s3-"))
        self._log = self._folder / "log"
        self.port = free_port()
        process = f"moto {version('moto')}" if program is None else f"versitygw {version_of(program)}"
        self._container = container_of("s3", process, [self.port])
        self._process: subprocess.Popen[bytes] | Container
        self.kind = "moto" if program is None and self._container is None else "versitygw"
        (self._folder / "buckets").mkdir()
        (self._folder / "sidecar").mkdir()
        self._command = [sys.executable, "-c", _MOTO]
        environment = dict(os.environ)
        self._port = r"http://127.0.0.1:(\d+)"
        if program is not None:
            environment |= {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
            self._port = r"127\.0\.0\.1:(\d+)"
            self._command = [program, "--port", f"127.0.0.1:{self.port}", "posix", "--sidecar"]
            self._command += [str(self._folder / "sidecar"), str(self._folder / "buckets")]
        self._environment = environment
        self.start()
        if self._container is None:
            self.port = self._found_port()
        self.new_bucket()

    def start(self) -> None:
        """Start it; again, after `stop`, only versitygw, which has what was there."""
        if self._container is not None:
            self._process = self._container.start()
            return
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, env=self._environment, cwd=self._folder
            )

    def stop(self) -> None:
        """It is away, at once."""
        self._process.kill()
        self._process.wait()

    @property
    def options(self) -> dict[str, Any]:
        """What fsspec's file system is made with."""
        endpoint = {"endpoint_url": f"http://127.0.0.1:{self.port}", "region_name": "us-east-1"}
        return {"key": KEY, "secret": SECRET, "client_kwargs": endpoint}

    @property
    def environment(self) -> dict[str, str]:
        """The same for a process, as every client of S3 reads it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @property
    def fs(self) -> Any:
        return fsspec.filesystem("s3", **self.options)

    @retry(wait=wait_fixed(0.1), stop=stop_after_delay(_DEADLINE_S), reraise=True)
    def new_bucket(self) -> str:
        """The name of an empty bucket."""
        name = f"b{uuid.uuid4().hex}"
        self.fs.call_s3("create_bucket", Bucket=name)
        return name

    def new_folder(self) -> str:
        """The URL of a folder in an empty bucket."""
        return f"s3://{self.new_bucket()}/totals"

    def uploads(self, bucket: str) -> list[str]:
        """The keys of uploads that are neither completed nor aborted."""
        return [
            each["Key"]
            for each in self.fs.call_s3("list_multipart_uploads", Bucket=bucket).get("Uploads", ())
        ]

    @retry(wait=wait_fixed(0.05), stop=stop_after_delay(_DEADLINE_S), reraise=True)
    def _found_port(self) -> int:
        assert self._process.poll() is None, self._log.read_text()
        found = re.search(self._port, self._log.read_text() + " ".join(self._command))
        assert found, self._log.read_text()
        return int(found[1])

    def close(self) -> None:
        self.stop()
        if self._container is not None:
            self._container.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
