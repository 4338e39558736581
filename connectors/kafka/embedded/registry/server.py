"""The registry's process: HTTP on loopback in front of `Requests`, and a journal of changes behind it.

    python -m onceflow.connectors.kafka.embedded.registry.server FOLDER PORT

FOLDER/schemas.jsonl has one change a line and is read at the start. A line is on disk before its change is
answered; half a line at the end is of a change that nobody was told of.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from onceflow.connectors.kafka.embedded.registry.requests import RefusedRequest, Requests
from onceflow.connectors.kafka.embedded.registry.subjects import Change, Subjects
from onceflow.connectors.kafka.embedded.settings import HOST
from onceflow.runtime.errors import OnceflowError

_JOURNAL = "schemas.jsonl"
_CONTENT = "application/vnd.schemaregistry.v1+json"
_BODY_BYTES_MAX = 16 * 2**20


class Journal:
    """The file of a folder, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        """Raises OnceflowError if another process has it."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / _JOURNAL
        self._file = self._path.open("a+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise OnceflowError(
                f"another process has the schema registry of {folder}: stop it, or use another folder"
            ) from error

    def changes(self) -> Iterator[Change]:
        """What was kept, in order; called first. Raises OnceflowError naming a line that is none."""
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                change: Change = msgspec.json.decode(line, type=Change)
            except msgspec.DecodeError as error:
                raise OnceflowError(
                    f"line {number} of {self._path} is damaged ({error}): put the file back from a copy, or "
                    "remove it and register the schemas again"
                ) from error
            whole += len(line)
            yield change
        self._file.truncate(whole)

    def keep(self, changes: list[Change]) -> None:
        """When it returns they are on disk. When it raises OSError nothing is kept."""
        before = os.fstat(self._file.fileno()).st_size
        raw = b"".join(msgspec.json.encode(change) + b"\n" for change in changes)
        try:
            if os.write(self._file.fileno(), raw) < len(raw):
                raise OSError("the disk is full")
            os.fsync(self._file.fileno())
        except OSError:
            os.ftruncate(self._file.fileno(), before)  # else the next line would go on with half of this one
            raise

    def close(self) -> None:
        self._file.close()


class RegistryServer:
    """The registry of a folder on a port of loopback. `port` 0: any that is free."""

    def __init__(self, folder: Path, port: int) -> None:
        self._journal = Journal(folder)
        self._lock = threading.Lock()
        self._subjects = Subjects()
        for change in self._journal.changes():
            self._subjects.apply(change)
        self._requests = Requests(self._subjects, self._keep)
        try:
            self._http = http.server.ThreadingHTTPServer((HOST, port), _handler_of(self))
        except OSError:
            self._journal.close()
            raise
        self._http.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._http.server_address[1]}"

    def serve(self) -> None:
        """Returns after `stop`, which another thread calls."""
        self._http.serve_forever(poll_interval=0.05)

    def stop(self) -> None:
        self._http.shutdown()
        self.close()

    def close(self) -> None:
        self._http.server_close()
        self._journal.close()

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        """The HTTP status, and what is written as JSON."""
        parts = urlsplit(target)
        path = tuple(unquote(part) for part in parts.path.split("/") if part)
        query = dict(parse_qsl(parts.query))
        try:
            given = json.loads(body) if body else None
            with self._lock:
                return 200, self._requests.answer(method, path, query, given)
        except ValueError as error:
            return 400, {"error_code": 400, "message": f"the request's body is no JSON: {error}"}
        except OSError as error:
            return 500, {"error_code": 50001, "message": f"the registry can't keep it: {error}"}
        except RefusedRequest as error:
            return error.status, {"error_code": error.code, "message": str(error)}

    def _keep(self, changes: list[Change]) -> None:
        self._journal.keep(changes)
        for change in changes:
            self._subjects.apply(change)


def _handler_of(server: RegistryServer) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer is one packet
        disable_nagle_algorithm = True

        def handle_one_request(self) -> None:
            with contextlib.suppress(ConnectionError):  # a client that is gone
                super().handle_one_request()

        def _respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if length > _BODY_BYTES_MAX:
                self.close_connection = True
                status, answer = 413, {"error_code": 413, "message": "a request has at most 16 MiB"}
            else:
                status, answer = server.answer(str(self.command), self.path, self.rfile.read(length))
            raw = json.dumps(answer, ensure_ascii=False).encode()
            self.send_response(status)
            self.send_header("Content-Type", _CONTENT)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)
            self.wfile.flush()

        do_GET = do_POST = do_PUT = do_DELETE = _respond

        def log_message(self, format: str, *args: Any) -> None:
            """No line for each request: the log has what went wrong."""

    return Handler


def main(folder: str, port: str) -> None:
    try:
        server = RegistryServer(Path(folder), int(port))
    except (OnceflowError, OSError) as error:
        sys.exit(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.serve()
    finally:
        server.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
