"""Pump: one connection after another to a stream, on a thread of its own; its events wait in a queue.

A connection asks for what comes behind the last event that was put into the queue. What a cut connection had
in its last, unfinished piece is sent again by the server.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import urllib3

from onceflow.connectors.http_headers import headers_with_variables
from onceflow.connectors.http_stream.framing import Event, Framing
from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import DataLossError, Fatal, OnceflowError, Unavailable

_CHUNK_BYTES = 1 << 16
_QUEUE_BYTES = 8 << 20
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.05, 5.0
_SAY_AFTER_MS = 1_000
_REDIRECTS_MAX = 5
_SHOWN_BYTES = 200
_OK, _NO_CONTENT, _BAD_REQUEST, _GONE, _SERVER_ERROR = 200, 204, 400, 410, 500
_PASSING = frozenset({408, 425, 429})
"""Client errors that pass by themselves."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """How a stream is asked for."""

    url: str
    make_framing: Callable[[], Framing]
    content_type: str | None
    """The type that an answer has to have; None: any."""
    resume_header: str | None
    resume_parameter: str | None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """`${NAME}` in a value is that variable of the environment of the slot."""
    silence_ms: int = 60_000
    """A connection on which nothing comes for so long is given up: it may be dead."""
    give_up_ms: int = 120_000
    """A server that is away for so long fails the attempt."""

    def headers_for(self, last_id: str | None) -> dict[str, str]:
        """Raises Fatal for a variable that is not there."""
        made = headers_with_variables(self.headers, os.environ, self.url)
        if self.content_type is not None:
            made.setdefault("Accept", self.content_type)
        if last_id is not None and self.resume_header is not None:
            made[self.resume_header] = last_id
        return made

    def url_for(self, last_id: str | None) -> str:
        if last_id is None or self.resume_parameter is None:
            return self.url
        parts = urlsplit(self.url)
        query = "&".join(filter(None, [parts.query, urlencode({self.resume_parameter: last_id})]))
        return urlunsplit(parts._replace(query=query))


class Pump:
    """The events of one stream behind `last_id` (None: from where the server begins)."""

    def __init__(
        self,
        request: StreamRequest,
        last_id: str | None,
        clock: Clock,
        on_wait: Callable[[str], None],
        wake: Callable[[], None],
    ) -> None:
        self._request = request
        self._last_id = last_id
        self._resumed_at: str | None = None
        """The event behind which the connection was asked to begin; None: events of it have come."""
        self._clock = clock
        self._on_wait = on_wait
        self._wake = wake
        self._events: collections.deque[Event] = collections.deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._error: OnceflowError | None = None
        self._has_ended = False
        self._closed = threading.Event()
        self._has_said = False
        self._http = urllib3.PoolManager(retries=urllib3.Retry(0, redirect=_REDIRECTS_MAX))
        self._response: Any = None
        threading.Thread(target=self._run, name="onceflow-http-stream", daemon=True).start()

    def take(self, count: int) -> list[Event]:
        """The next events, `count` at most, without waiting. Raises what ended the thread, once all events
        before it are taken."""
        with self._changed:
            taken = [self._events.popleft() for _ in range(min(count, len(self._events)))]
            self._bytes -= sum(len(event.data) for event in taken)
            self._changed.notify_all()
            if not taken and self._error is not None:
                raise self._error
        return taken

    @property
    def has_ended(self) -> bool:
        """The server has said that nothing more will come, and all is taken."""
        with self._changed:
            return self._has_ended and not self._events

    def close(self) -> None:
        """End the thread; what is in the queue is dropped."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        response = self._response
        if response is not None:
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # it was closed already
                response.shutdown()  # the thread may wait for the next piece

    # --- The thread ---

    def _run(self) -> None:
        try:
            self._pump()
        except OnceflowError as error:
            self._end(error)
        except Exception as error:  # a bug: told where it is polled, and not on a thread that nobody sees
            self._end(Fatal(f"{self._request.url}: {type(error).__name__}: {error}"))

    def _pump(self) -> None:
        away_since_ms, pause_s = None, _PAUSE_FIRST_S
        while not self._closed.is_set():
            framing = self._request.make_framing()
            try:
                came, reason = self._connect(framing)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                came, reason = 0, _reason(error)
            if self._has_ended or self._closed.is_set():
                return
            now_ms = self._clock.monotonic_ms()
            if came:
                away_since_ms, pause_s = None, _PAUSE_FIRST_S
            away_since_ms = now_ms if away_since_ms is None else away_since_ms
            self._tell(now_ms - away_since_ms, reason)
            asked_s = (framing.retry_ms or 0) / 1000
            self._closed.wait(max(pause_s, min(asked_s, _PAUSE_MAX_S)))
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)

    def _connect(self, framing: Framing) -> tuple[int, str]:
        """One connection until it is cut: how many pieces came on it, and why it ended."""
        request = self._request
        timeout = urllib3.Timeout(connect=min(10, request.silence_ms / 1000), read=request.silence_ms / 1000)
        self._response = response = self._http.request(
            "GET",
            request.url_for(self._last_id),
            headers=request.headers_for(self._last_id),
            timeout=timeout,
            preload_content=False,
        )
        self._resumed_at, came = self._last_id, 0
        try:
            if response.status != _OK:
                self._refused(response)
                return 0, f"it answers {response.status}"
            self._check_type(response.headers.get("Content-Type", ""))
            if self._has_said:
                self._has_said = False
                self._on_wait("")
            while not self._closed.is_set():
                data = response.read1(_CHUNK_BYTES)
                if not data:
                    break
                came += 1
                self._put(framing.feed(data))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return came, _reason(error)
        finally:
            response.close()
        return came, "it closed the connection"

    def _refused(self, response: Any) -> None:
        """Raises if another try can't help."""
        status, request = response.status, self._request
        if status == _NO_CONTENT:
            self._end(None)
            return
        body = response.read(_SHOWN_BYTES) or b""
        said = f"{request.url} answers {status}: {body[:_SHOWN_BYTES].decode(errors='replace').strip()!r}"
        if status == _GONE and self._last_id is not None:
            raise DataLossError(
                f"{said}. What comes behind event {self._last_id!r} is gone: start with a new checkpoint "
                "folder to read on from where the server begins"
            )
        if _BAD_REQUEST <= status < _SERVER_ERROR and status not in _PASSING:
            raise Fatal(f"{said}: check url= and headers= of the source")

    def _check_type(self, found: str) -> None:
        wanted = self._request.content_type
        if wanted is not None and found.partition(";")[0].strip().lower() != wanted:
            raise Fatal(
                f'{self._request.url} answers with {found!r}, not {wanted!r}: say framing="json-lines" if it '
                "sends those, or check the address"
            )

    def _put(self, events: list[Event]) -> None:
        """Add events to the queue, which may be full. Some servers begin with the event that was named."""
        fresh = events
        while self._resumed_at is not None and fresh:
            if fresh[0].id != self._resumed_at:
                self._resumed_at = None
                break
            fresh = fresh[1:]
        with self._changed:
            while self._bytes > _QUEUE_BYTES and not self._closed.is_set():
                self._changed.wait()
            self._events.extend(fresh)
            self._bytes += sum(len(event.data) for event in fresh)
        self._last_id = next((e.id for e in reversed(fresh) if e.id is not None), self._last_id)
        if fresh:
            self._wake()

    def _tell(self, away_ms: float, reason: str) -> None:
        if away_ms >= self._request.give_up_ms:
            raise Unavailable(
                f"{self._request.url} is away since {away_ms / 1000:.0f} s ({reason}): the attempt is "
                "given up, and goes on from the last checkpoint: see that it answers, or give timeout="
            )
        if away_ms >= _SAY_AFTER_MS:
            self._has_said = True
            self._on_wait(f"{self._request.url} is away since {away_ms / 1000:.0f} s: {reason}")

    def _end(self, error: OnceflowError | None) -> None:
        with self._changed:
            self._error, self._has_ended = error, error is None
        self._wake()


def _reason(error: Exception) -> str:
    if isinstance(error, urllib3.exceptions.MaxRetryError) and error.reason is not None:
        error = error.reason
    return str(error).rpartition(": ")[2] or type(error).__name__
