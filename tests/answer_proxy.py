"""Between a client and a server: swallows a request or its answer, holds a request back, or is slow."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from typing import Self

DEADLINE_S = 240


class AnswerProxy:
    """Passes bytes on, until a request contains what it waits for. What it waits for has to come in one block
    of bytes; the rest of the request may come in others."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._word = b""
        self._left = 0
        self._action = ""
        self._free = threading.Event()
        self.holds = threading.Event()
        """A request is held."""
        self.has_swallowed = False
        self.delay_s = 0.0
        """How late each block of a request reaches the server."""
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._free.set()
        self._closed.set()
        self._listener.close()

    def swallow(self, word: bytes, number: int, is_done: bool) -> None:
        """Break the connection at the request of that number from now on that contains the word: before the
        server gets it, or when it has answered."""
        self.has_swallowed = False
        self._word, self._left, self._action = word, number, "answer" if is_done else "request"

    def hold(self, word: bytes) -> None:
        """Keep the next request that contains the word, also when its client is gone, until `let_go`."""
        self._free.clear()
        self.holds.clear()
        self._word, self._left, self._action = word, 1, "hold"

    def let_go(self) -> None:
        self._free.set()

    def _action_for(self, block: bytes) -> str:
        with self._lock:
            if not self._word or self._word not in block:
                return ""
            self._left -= 1
            if self._left:
                return ""
            self._word = b""
            return self._action

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with (
            client,
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self._server_port)) as server,
        ):
            awaits_answer = False
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    block = ready.recv(1 << 20)
                    if not block:
                        return
                    action = self._action_for(block) if ready is client else ""
                    if action == "hold":
                        self.holds.set()
                        self._free.wait(DEADLINE_S)
                    if action == "request" or (awaits_answer and ready is server):
                        self.has_swallowed = True
                        return
                    awaits_answer |= action == "answer"
                    if ready is client and self.delay_s:
                        self._closed.wait(self.delay_s)
                    (server if ready is client else client).sendall(block)
