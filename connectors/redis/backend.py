"""RedisBackend: rows as keys of Redis. Each call is one script, which Redis runs alone and whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from onceflow.connectors.redis.key_values import Form, RowValues
from onceflow.connectors.redis.server_errors import meaning
from onceflow.connectors.versioned_upserts.backend import Answer, BadRow, Note, Piece
from onceflow.runtime.errors import Fatal, Retryable

T = TypeVar("T")
_CONNECT_S = 10.0
_ANSWER_S = 30.0

_WRITE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
local expire, at = ARGV[3], 4
for i = 3, #KEYS do
    local key, count = KEYS[i], tonumber(ARGV[at])
    if count == 1 then
        redis.call('SET', key, ARGV[at + 1])
    else
        redis.call('DEL', key)
        if count > 0 then redis.call('HSET', key, unpack(ARGV, at + 1, at + count)) end
    end
    if count > 0 and expire ~= '0' then redis.call('PEXPIRE', key, expire) end
    at = at + count + 1
end
return 1
"""
"""KEYS: the notes of the owner and of the sink, and each row's. ARGV: the notes as they must be, the rows'
life in ms (0: for ever), and for each row how many values it has (0: it is deleted), and these."""

_PUT_NOTE = """
local now = redis.call('GET', KEYS[1])
if (now or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """See RedisSink, whose arguments these are. `expire_ms`: 0 for rows that stay."""

    url: str = field(repr=False)
    prefix: str
    form: Form
    expire_ms: int
    bad_rows_to: str | None


class RedisBackend:
    """See Backend.

    Redis compares the notes of the owner and the sink in the same step as it writes, so versions need not be
    kept beside the rows: a call that comes late finds another note and changes nothing.
    """

    calls_max = 1
    rows_max = 1_000
    bytes_max = 1 << 20
    generation_first = 1

    def __init__(self, settings: RedisSettings, values: RowValues, uid: str) -> None:
        self._settings = settings
        self._values = values
        self._where = f"sink {uid!r}"
        self._client: redis.Redis | None = None

    def open(self) -> None:
        self.close()
        client = redis.Redis.from_url(
            self._settings.url,
            socket_connect_timeout=_CONNECT_S,
            socket_timeout=_ANSWER_S,
            retry=Retry(NoBackoff(), 0),  # whoever calls tries again, and knows what
        )
        self._client = client
        told: Any = self._telling("connecting", lambda: client.info("cluster"))
        if told.get("cluster_enabled"):
            raise Fatal(
                f"{self._where}: {self._settings.prefix} is in a Redis Cluster, whose scripts take keys of "
                "one slot only: use a Redis without cluster mode"
            )
        self._put_note = client.register_script(_PUT_NOTE)
        self._write = client.register_script(_WRITE)

    def read_note(self, name: str) -> Note | None:
        client, key = self._connected(), self._note_key(name)
        text: Any = self._telling("reading its ledger", lambda: client.get(key))
        return None if text is None else Note(name, text.decode())

    def put_note(self, name: str, text: str, over: Note | None) -> Note | None:
        self._connected()
        arguments = ["" if over is None else over.text, text]
        done = self._telling(
            "changing its ledger", lambda: self._put_note(keys=[self._note_key(name)], args=arguments)
        )
        return Note(name, text) if done else None

    def write(self, piece: Piece, version: int, under: Sequence[Note]) -> Answer:
        self._connected()
        values, bad = self._values.of(piece)
        arguments: list[Any] = [*(note.text for note in under), self._settings.expire_ms]
        keys, prefix = [self._note_key(note.name) for note in under], self._settings.prefix
        for n, (key, row) in enumerate(zip(piece.keys, values, strict=True)):
            if n not in bad:
                keys.append(f"{prefix}:{key}")
                arguments.append(len(row))
                arguments += row
        done = self._telling("writing rows", lambda: self._write(keys=keys, args=arguments))
        if not done:
            raise Retryable(f"{self._where}: its ledger was changed by somebody else")
        return Answer(bad=bad)

    def set_aside(self, bad: Sequence[BadRow]) -> None:
        client, place = self._connected(), self._settings.bad_rows_to
        assert place is not None, "asked for only where the user has named one"
        rows: Any = {}
        for row in bad:
            rows[row.name] = msgspec.json.encode({"key": row.key, "reason": row.reason, "row": row.row})
        self._telling("setting rows aside", lambda: client.hset(place, mapping=rows))

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _note_key(self, name: str) -> str:
        return f"onceflow:{self._settings.prefix}:{name}"

    def _connected(self) -> redis.Redis:
        if self._client is None:
            raise Retryable(f"{self._where} has no connection: it is made by the next claim")
        return self._client

    def _telling(self, doing: str, call: Callable[[], T]) -> T:
        """The call. After an error its connection is gone."""
        try:
            return call()
        except redis.RedisError as error:
            self.close()
            raise meaning(error, f"{self._where}: {doing}") from error
