"""A receiver that remembers keys, for the sink that posts rows: what it has answered survives its kill.

A program of its own: python webhook_receiver.py PORT FILE
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Self

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

DEADLINE_S = 240
_TABLES = "CREATE TABLE IF NOT EXISTS requests (key TEXT PRIMARY KEY, path TEXT, body TEXT, times INT)"
_TAKE = "INSERT INTO requests VALUES (?, ?, ?, 1) ON CONFLICT (key) DO UPDATE SET times = times + 1"


class WebhookReceiver:
    """The program as a process on a port of loopback, with what it has taken in a file."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="onceflow-webhooks-"))
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, again where it was killed, and wait until it answers."""
        command = [sys.executable, __file__, str(self.port), str(self._folder / "requests.db")]
        self._process = subprocess.Popen(command, start_new_session=True)
        self._wait()

    @retry(
        retry=retry_if_exception_type(OSError),
        stop=stop_after_delay(DEADLINE_S),
        wait=wait_fixed(0.02),
        reraise=True,
    )
    def _wait(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()

    def taken(self, path: str = "/rows") -> list[Any]:
        """The rows of all requests to a path, each key once."""
        rows: list[Any] = []
        for (body,) in self._asked("SELECT body FROM requests WHERE path = ? ORDER BY rowid", path):
            rows += body if isinstance(body := json.loads(body), list) else [body]
        return rows

    def times(self) -> dict[str, int]:
        """How often each key came."""
        return dict(self._asked("SELECT key, times FROM requests"))

    def _asked(self, query: str, *values: str) -> list[Any]:
        with closing(sqlite3.connect(self._folder / "requests.db", timeout=DEADLINE_S)) as database:
            return database.execute(query, values).fetchall()


def main(port: int, file: str) -> None:
    database = sqlite3.connect(file, isolation_level=None, timeout=DEADLINE_S)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute(_TABLES)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            database.execute(_TAKE, (self.headers["Idempotency-Key"], self.path, body.decode()))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    # One request at a time; a connection that is held open would keep all others out: HTTP/1.0 closes it.
    HTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
