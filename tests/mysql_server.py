"""A real MariaDB for tests, from Debian's package: not started where that is not installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pymysql
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from onceflow.connectors.kafka.embedded.ports import free_port
from onceflow.connectors.mysql.server_url import connection_arguments
from onceflow.connectors.mysql.settings import MySqlSettings
from onceflow.connectors.sql_tables.table import TableName
from tests.server_container import Container, container_of, image_of, version_of

DEADLINE_S = 240
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
_SERVER, _INSTALL = (shutil.which(name, path=_PATH) for name in ("mariadbd", "mariadb-install-db"))
_NO_PROCESS = "" if _SERVER and _INSTALL else "there is no MariaDB here: apt-get install mariadb-server"
WHY_NOT = "" if image_of("mariadb") else _NO_PROCESS
"""Why there is none; empty: there is one, or the image of a container is named."""
_SETTINGS = {
    "innodb-flush-log-at-trx-commit": "2",  # what it has answered is the operating system's
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "32M",
    "sql-mode": "",  # as careless as servers are: the sink has its own
    "skip-name-resolve": "1",
}
_OPTIONS = [f"--{name}={value}" for name, value in _SETTINGS.items()]
_INIT = """
CREATE DATABASE IF NOT EXISTS shop CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS onceflow@'{clients}';
GRANT ALL ON shop.* TO onceflow@'{clients}';
CREATE USER IF NOT EXISTS admin@'{clients}';
GRANT ALL ON *.* TO admin@'{clients}';
"""
"""Run at each start."""
_INIT_FILE = "/onceflow/init.sql"


class MySqlServer:
    """A server on a port of loopback, with a folder that is gone when it is closed. Root does not run it:
    then the user nobody does. What it has answered survives its kill."""

    def __init__(self) -> None:
        self.port = free_port()
        said = version_of(_SERVER) if _SERVER else ""
        self._container = container_of("mariadb", said, [self.port], lambda: _NO_PROCESS)
        self._folder = Path(tempfile.mkdtemp(prefix="onceflow-mysql-"))
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
        self._process: subprocess.Popen[bytes] | Container | None = None
        if self._container is not None:
            self._container.files[_INIT_FILE] = _INIT.format(clients="%")
            self._container.command += [*_OPTIONS, f"--init-file={_INIT_FILE}"]
            return
        (self._folder / "init.sql").write_text(_INIT.format(clients="127.0.0.1"))
        assert _INSTALL is not None
        # fmt: off
        subprocess.run(
            [_INSTALL, "--no-defaults", f"--datadir={self._data}", "--skip-test-db",
             "--auth-root-authentication-method=normal", "--innodb-log-file-size=32M"],
            check=True, capture_output=True, **self._user,
        )
        # fmt: on

    @property
    def url(self) -> str:
        return self.url_by(self.port)

    def url_by(self, port: int) -> str:
        """Give the URL that leads to the server by another port of this machine."""
        return f"mysql://onceflow@127.0.0.1:{port}/shop"

    @property
    def _data(self) -> Path:
        return self._folder / "data"

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

    def _run_server(self) -> subprocess.Popen[bytes]:
        assert _SERVER is not None
        places = [
            f"--datadir={self._data}",
            f"--socket={self._folder}/socket",
            f"--pid-file={self._folder}/pid",
        ]
        address = ["--bind-address=127.0.0.1", f"--port={self.port}", f"--init-file={self._folder}/init.sql"]
        with open(self._folder / "server.log", "ab") as log:
            return subprocess.Popen(
                [_SERVER, "--no-defaults", *places, *address, *_OPTIONS],
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._user,
            )

    @retry(
        retry=retry_if_exception_type(pymysql.OperationalError),
        stop=stop_after_delay(DEADLINE_S),
        wait=wait_fixed(0.05),
        reraise=True,
    )
    def connect(self) -> pymysql.Connection[Any]:
        """A connection of the administrator's, once it answers."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="admin",
            database="shop",
            autocommit=True,
            charset="utf8mb4",
        )

    def kill(self) -> None:
        """SIGKILL: what was not committed is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def rows(self, query: str) -> list[Any]:
        """What a query gives; of one column its values."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return [row[0] if len(row) == 1 else row for row in cursor.fetchall()]

    def execute(self, *statements: str) -> None:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def appending_settings(url: str, table: str, schema: pa.Schema) -> MySqlSettings:
    """A table that is appended to, and made."""
    name, ledger = TableName.of(table), TableName.of("onceflow_ledger")
    return MySqlSettings(connection_arguments(url), name, (), ledger, None, True, schema)
