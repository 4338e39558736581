"""A NiFi for tests: a small server of ours that speaks site-to-site over HTTP for output ports, as NiFi's own
sources say it does. Flow files are put into it, and are gone when their transaction is confirmed."""

from __future__ import annotations

import http.server
import json
import re
import threading
import uuid
import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from onceflow.connectors.nifi.flow_files import FlowFile, packed

TICK_S = 0.02
_PREFIX = "x-nifi-site-to-site-"
_PORTS = "/nifi-api/data-transfer/output-ports"


@dataclass
class _Transaction:
    port_id: str
    expires: float
    files: list[FlowFile]
    checksum: str = ""


class _Http(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Readers are killed in the middle of a request."""


class NifiServer:
    """One node with output ports, on a port of loopback. What else a test wants is set on it while it
    runs."""

    def __init__(self, ttl_s: float = 30) -> None:
        """`ttl_s`: for how long a transaction lives; it is told in whole seconds, rounded up."""
        self.ttl_s = ttl_s
        self.clock_s = 0.0
        """The server's time, which stands still while this process does: a busy machine that runs neither the
        server nor a reader beside it lets no transaction expire."""
        self.deliveries = 0
        """How many flow files were sent."""
        self.status: int | None = None
        """What all requests are answered with, instead."""
        self.headers: list[dict[str, str]] = []
        """The headers of the requests that began a transaction."""
        self._queues: dict[str, deque[FlowFile]] = {}
        self._transactions: dict[str, _Transaction] = {}
        self._lock = threading.Lock()
        self._is_stopped = threading.Event()
        self._server = _Http(("127.0.0.1", 0), self._handler())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _tick(self) -> None:
        while not self._is_stopped.wait(TICK_S):
            self.clock_s += TICK_S

    def stop(self) -> None:
        self._is_stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def create(self, port: str) -> str:
        """An output port, whose id is its name behind "id-"."""
        self._queues[f"id-{port}"] = deque()
        return port

    def put(self, port: str, bodies: Iterable[bytes], **attributes: str) -> list[str]:
        """Flow files with these attributes, and their uuids."""
        files = [FlowFile({"uuid": str(uuid.uuid4()), **attributes}, body) for body in bodies]
        with self._lock:
            self._queues[f"id-{port}"] += files
        return [each.attributes["uuid"] for each in files]

    def waiting(self, port: str) -> int:
        """How many flow files were not confirmed."""
        with self._lock:
            held = [t for t in self._transactions.values() if t.port_id == f"id-{port}"]
            return len(self._queues[f"id-{port}"]) + sum(len(t.files) for t in held)

    # --- What is asked ---

    def _expire(self) -> None:
        for key, transaction in [*self._transactions.items()]:
            if self.clock_s > transaction.expires:
                self._roll_back(key)

    def _roll_back(self, key: str) -> None:
        transaction = self._transactions.pop(key)
        self._queues[transaction.port_id].extendleft(reversed(transaction.files))

    def _answer(self, method: str, url: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        address = urlsplit(url)
        if self.status is not None:
            return self.status, {}, b'{"message": "not now"}'
        if address.path == "/nifi-api/site-to-site":
            ports = [{"id": key, "name": key.removeprefix("id-")} for key in self._queues]
            return 200, {}, json.dumps({"controller": {"outputPorts": ports}}).encode()
        match = re.fullmatch(rf"{_PORTS}/([^/]+)/transactions(?:/([^/]+)(/flow-files)?)?", address.path)
        if not match or match[1] not in self._queues or headers.get(f"{_PREFIX}protocol-version") != "1":
            return 404, {}, b"{}"
        with self._lock:
            self._expire()
            if match[2] is None:
                return self._begun(match[1], headers)
            if match[2] not in self._transactions:
                return 404, {}, b'{"message": "the transaction was not found"}'
            return self._of_transaction(method, match[2], bool(match[3]), parse_qs(address.query), headers)

    def _begun(self, port_id: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        self.headers.append(headers)
        key = str(uuid.uuid4())
        self._transactions[key] = _Transaction(port_id, self.clock_s + self.ttl_s, [])
        location = f"{self.url}{_PORTS}/{port_id}/transactions/{key}"
        ttl = str(-int(-self.ttl_s // 1))
        return 201, {"Location": location, f"{_PREFIX}server-transaction-ttl": ttl}, b"{}"

    def _of_transaction(
        self, method: str, key: str, is_data: bool, query: dict[str, Any], headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        transaction = self._transactions[key]
        queue = self._queues[transaction.port_id]
        if method == "GET" and is_data:
            count = min(len(queue), int(headers.get(f"{_PREFIX}batch-count", "100")))
            transaction.files = [queue.popleft() for _ in range(count)]
            body = b"".join(map(packed, transaction.files))
            transaction.checksum = str(zlib.crc32(body))
            transaction.expires = self.clock_s + self.ttl_s
            self.deliveries += count
            return (202, {}, body) if count else (200, {}, b"")
        if method == "PUT":
            transaction.expires = self.clock_s + self.ttl_s
            return 200, {}, b"{}"
        code = query.get("responseCode", [""])[0]
        if method == "DELETE" and code == "15":
            self._roll_back(key)
            return 200, {}, b'{"responseCode": 15}'
        if method == "DELETE" and code == "12" and query.get("checksum") == [transaction.checksum]:
            del self._transactions[key]
            return 200, {}, b'{"responseCode": 12}'
        if method == "DELETE" and code == "12":
            self._roll_back(key)
            return 400, {}, b'{"responseCode": 19, "message": "the checksum differs"}'
        return 405, {}, b"{}"

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                asked = {name.lower(): value for name, value in self.headers.items()}
                status, headers, body = server._answer(self.command, self.path, asked)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_: object) -> None: ...

        return Handler
