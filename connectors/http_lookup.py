"""HttpLookup: rows that a service gives as JSON, by key, one request for a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import urllib3

from onceflow.runtime.errors import UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.types.record_types import arrow_schema

NOT_FOUND = 404
OK = range(200, 300)
SHOWN_MAX = 200


@explained
class HttpLookup:
    """A service for `stream.lookup_join`: `HttpLookup("http://localhost:8080/{name}", User)` asks with GET.

    The names in braces are the key; their values are quoted. The answer is a JSON object, or a list of them,
    with the columns of `row`, a record type or an Arrow schema; columns that are not in it are null, and 404
    and an empty list say that there is no row. Any other status fails the request. A subtask keeps up to
    `connections` connections. Needs the extra `http`.
    """

    keys_at_once = 1

    def __init__(
        self,
        url: str,
        row: type | pa.Schema,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        connections: int = 32,
    ) -> None:
        self.schema = row if isinstance(row, pa.Schema) else arrow_schema(row)
        self.keys = tuple(name for _, name, _, _ in Formatter().parse(url) if name)
        if not self.keys:
            raise UsageError(f"HttpLookup({url!r}): name the key in braces, as in http://users/{{name}}")
        self._url = url
        self._headers = dict(headers or {})
        self._timeout_s = timeout_s
        self._connections = connections

    def open(self, ctx: Any) -> None:
        self._pool = urllib3.PoolManager(
            maxsize=self._connections, timeout=self._timeout_s, retries=False, headers=self._headers
        )

    def close(self) -> None:
        self._pool.clear()

    def look_up(self, keys: Sequence[tuple[Any, ...]]) -> Mapping[tuple[Any, ...], Sequence[Any]]:
        (key,) = keys
        quoted = {name: quote(str(part), safe="") for name, part in zip(self.keys, key, strict=True)}
        url = self._url.format(**quoted)
        answer = self._pool.request("GET", url)
        if answer.status == NOT_FOUND:
            return {}
        if answer.status not in OK:
            raise ConnectionError(f"{url} says {answer.status}: {answer.data[:SHOWN_MAX]!r}")
        found = answer.json()
        rows = found if isinstance(found, list) else [found]
        return {key: [{name: row.get(name) for name in self.schema.names} for row in rows]}
