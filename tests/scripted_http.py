"""A little HTTP server that answers as a test says, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Told:
    """An answer. `is_cut`: the connection is closed instead."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] | None = None
    is_cut: bool = False


class ScriptedHttp:
    """Answers each request with what `answer` gives for it, on a thread of its own."""

    def __init__(self, answer: Callable[[Asked], Told]) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[ScriptedHttp]:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        scripted = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                asked = Asked(self.command, self.path, dict(self.headers), body)
                scripted.asked.append(asked)
                told = scripted.answer(asked)
                if told.is_cut:
                    self.close_connection = True
                    return
                self.send_response(told.status)
                for name, value in (told.headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(told.body)))
                self.end_headers()
                self.wfile.write(told.body)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _any

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        return Handler
