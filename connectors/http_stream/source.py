"""HttpStreamSource: streams over HTTP, read on from behind the last event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from onceflow.connectors.bad_records import Tolerance
from onceflow.connectors.collections.fixed_splits import FixedSplits
from onceflow.connectors.formats import Format
from onceflow.connectors.http_stream.framing import JsonLines, ServerSentEvents, id_in
from onceflow.connectors.message_fields import named_fields
from onceflow.connectors.message_source import MessageSource
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import ReaderContext, Sink, SplitState
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

if TYPE_CHECKING:
    from onceflow.connectors.http_stream.connection import StreamRequest
    from onceflow.connectors.http_stream.reader import HttpStreamReader

_SSE, _LINES = "server-sent-events", "json-lines"


@explained
@dataclass(frozen=True, kw_only=True)
class HttpStreamSource(MessageSource):
    """Reads what servers send on connections that stay open. Each of the `urls` is a split, and the id of its
    last event its position. A Source; connects only when the job runs. Needs
    `pip install 'onceflow[http]'`.

    Each event counts once if the server gives each an id of its own, and sends what comes behind the one that
    it is asked for: after a cut or a restart the source asks for what comes behind the last event it has. An
    event without an id ends the job, unless `without_ids="at-most-once"` says that such events may be lost.
    """

    urls: Sequence[str]
    value: Format
    """What the data of an event is: Json(Trade)."""
    framing: Literal["server-sent-events", "json-lines"] = "server-sent-events"
    """"json-lines": a JSON object a line, with the id in `id_field`."""
    id_field: str | None = None
    """The field of a line that is its id, a text or an integer. For JSON lines only."""
    resume_header: str | None = None
    """The header that asks for what comes behind an event. By default "Last-Event-ID" for server-sent
    events."""
    resume_parameter: str | None = None
    """A parameter of the address that does ("since_id")."""
    start_after: str | None = None
    """At the very first start only: the event behind which to begin. None: where the server begins."""
    without_ids: Literal["refuse", "at-most-once"] = "refuse"
    events: Sequence[str] | None = None
    """The names of the events that are read ("trade"); others are passed by. None: all."""
    id_column: str | None = None
    event_column: str | None = None
    url_column: str | None = None
    """Names of columns with an event's id, its name, and the address that it came from."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further headers. `${TOKEN}` in one is the variable TOKEN of the slots' environment, so that it is in no
    checkpoint and no plan."""
    silence: str | int = "1 min"
    """A connection on which nothing comes for so long, not even a comment, is given up for a new one."""
    timeout: str | int = "2 min"
    """How long a server may be away before the attempt fails."""
    errors_tolerance: Tolerance = "none"
    """"none": an event that can't be decoded ends the job. "all": it goes to dead_letters."""
    dead_letters: Sink | None = None
    """Any sink for events that can't be decoded; errors_tolerance is then "all"."""
    columns: frozenset[str] | None = field(default=None, repr=False)
    """Set by project(): the columns that the job reads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "urls", (self.urls,) if isinstance(self.urls, str) else tuple(self.urls))
        _check(self)

    # --- Source ---

    @property
    def is_bounded(self) -> bool:
        return False

    @property
    def plan_note(self) -> str:
        if self.without_ids == "refuse":
            return "exactly once: each event has an id, and what comes behind the last one is asked for"
        return "events without an id are at most once: what comes while nobody is connected is lost"

    def open_enumerator(self, job: str, clock: Clock) -> FixedSplits:
        return FixedSplits(
            [SplitState(url, {"last_event_id": self.start_after, "count": 0}) for url in self.urls]
        )

    def open_reader(self, context: ReaderContext) -> HttpStreamReader:
        from onceflow.connectors.http_stream.reader import HttpStreamReader, Rows

        rows = Rows(
            self.rows(),
            self.read_beside(),
            None if self.events is None else frozenset(self.events),
            self.without_ids == "refuse",
        )
        return HttpStreamReader({url: self._request(url) for url in self.urls}, rows, context)

    # --- Parts ---

    def beside(self) -> dict[str, pa.Field]:
        """See MessageSource."""
        return named_fields({}, ("id",), id=self.id_column, event=self.event_column, url=self.url_column)

    def _request(self, url: str) -> StreamRequest:
        from onceflow.connectors.http_stream.connection import StreamRequest

        is_sse = self.framing == _SSE
        header = self.resume_header
        if is_sse and header is None and self.resume_parameter is None:
            header = "Last-Event-ID"
        return StreamRequest(
            url,
            ServerSentEvents if is_sse else partial(JsonLines, id_in(self.id_field)),
            "text/event-stream" if is_sse else None,
            header,
            self.resume_parameter,
            self.headers,
            duration_ms(self.silence, "silence"),
            duration_ms(self.timeout, "timeout"),
        )


def _check(source: HttpStreamSource) -> None:
    source.check_message_source("http", "urllib3", ("silence", "timeout"))
    if not source.urls or any(not url.startswith(("http://", "https://")) for url in source.urls):
        raise OptionError(f"urls={list(source.urls)!r}: give addresses that begin with http:// or https://")
    if len(set(source.urls)) < len(source.urls):
        raise OptionError(f"urls={list(source.urls)!r} names an address twice: give each once")
    for name, given, known in (
        ("framing", source.framing, (_SSE, _LINES)),
        ("without_ids", source.without_ids, ("refuse", "at-most-once")),
    ):
        if given not in known:
            raise OptionError(f"{name}={given!r}: write {' or '.join(map(repr, known))}")
    _check_ids(source)


def _check_ids(source: HttpStreamSource) -> None:
    is_lines = source.framing == _LINES
    if source.id_field is not None and not is_lines:
        raise OptionError(
            'id_field is for framing="json-lines": server-sent events have ids of their own, leave it out'
        )
    if not is_lines or source.without_ids != "refuse":
        return
    if source.id_field is None:
        raise OptionError(
            'framing="json-lines": name the field with a line\'s id with id_field=, or say '
            'without_ids="at-most-once" if lines may be lost'
        )
    if source.resume_header is None and source.resume_parameter is None:
        raise OptionError(
            'framing="json-lines": say how the server is asked for what comes behind a line: '
            'resume_parameter="since_id", or resume_header='
        )
