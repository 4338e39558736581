"""A server of numbered events over HTTP, as server-sent events and as JSON lines; also a program, for jobs
that are killed: python stream_server.py PORT COUNT."""

from __future__ import annotations

import contextlib
import http.server
import json
import sys
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit


class StreamServer:
    """Has `events`, numbered from 1, and sends those behind the asked one; then it waits for more.

    /events: server-sent; /lines: JSON lines, which have a field "id", behind `since`. What else a test wants
    is set on it while it runs.
    """

    def __init__(self, port: int = 0) -> None:
        self.events: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        self.cut_after: int | None = None
        """Close a connection after so many events."""
        self.statuses: list[int] = []
        """What the next requests are answered with, instead."""
        self.with_ids = True
        self.sends_asked_again = False
        """Whether it begins with the event that was named, and not behind it."""
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.is_over = False
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[StreamServer]:
        self.start()
        yield self
        self.stop()

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        with self.changed:
            self.is_over = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def add(self, *events: dict[str, Any]) -> None:
        with self.changed:
            self.events += events
            self.changed.notify_all()

    def behind(self, number: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The events behind this one, as they come."""
        while True:
            with self.changed:
                while not self.is_over and len(self.events) <= number:
                    self.changed.wait()
                if self.is_over:
                    return
                found = self.events[number:]
            for event in found:
                number += 1
                yield number, event

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append((self.path, dict(self.headers)))
                parts = urlsplit(self.path)
                status = server.statuses.pop(0) if server.statuses else 200
                self.send_response(status)
                is_sse = parts.path == "/events"
                self.send_header("Content-Type", "text/event-stream" if is_sse else "application/json")
                self.end_headers()
                if status != 200:
                    self.wfile.write(b"not now" if status != 204 else b"")
                    return
                asked = (
                    self.headers.get("Last-Event-ID")
                    if is_sse
                    else next(iter(parse_qs(parts.query).get("since", [])), None)
                )
                first = int(asked or 0) - (server.sends_asked_again and asked is not None)
                with contextlib.suppress(OSError):
                    for sent, (number, event) in enumerate(server.behind(first), 1):
                        self.wfile.write(self.framed(is_sse, number, event))
                        if sent == server.cut_after:
                            return

            def framed(self, is_sse: bool, number: int, event: dict[str, Any]) -> bytes:
                if not is_sse:
                    return json.dumps({"id": number, **event}).encode() + b"\n"
                name = f"event: {event['name']}\n" if "name" in event else ""
                event_id = f"id: {number}\n" if server.with_ids else ""
                return f"{name}{event_id}data: {json.dumps(event)}\n\n".encode()

            def log_message(self, *_: object) -> None:
                """Tests say what they need."""

        return Handler


def main(port: int, count: int) -> None:
    server = StreamServer(port)
    server.add(*({"user": f"u{n % 7}", "n": 1} for n in range(count)))
    server.cut_after = 700
    with server.running():
        threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
