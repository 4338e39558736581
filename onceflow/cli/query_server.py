"""The HTTP side of `onceflow serve-state`: questions in, JSON out, a token before anything."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from onceflow.runtime.errors import OnceflowError, UsageError
from onceflow.runtime.state_tables.chosen_keys import key_of_text
from onceflow.runtime.state_tables.followed import FollowedState, Found
from onceflow.runtime.state_tables.printed_values import json_text
from onceflow.runtime.state_tables.reader import UnknownTableError

BODY_BYTES_MAX = 32 * 2**20


AskLive = Callable[[str, str, Sequence[Any], bool], dict[str, Any]]
"""(operator, state, keys, whether these are texts) -> the answer of the job that runs."""


def query_app(followed: FollowedState, token: str, ask_live: AskLive) -> Starlette:
    """An ASGI application that answers from what is followed, or live, for those who have the token."""

    async def tables(_: Request) -> Response:
        return await run_in_threadpool(_tables, followed)

    async def one(request: Request) -> Response:
        asked = request.query_params
        if asked.get("live") in ("true", "1"):
            return await run_in_threadpool(_one_live, ask_live, _name(request), asked.get("key"))
        return await run_in_threadpool(_one, followed, _name(request), asked.get("key"))

    async def many(request: Request) -> Response:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_BYTES_MAX:
                return _error(413, f"the question has more than {BODY_BYTES_MAX} bytes: ask for fewer keys")
        return await run_in_threadpool(_many, followed, ask_live, _name(request), bytes(body))

    where = "/v1/state/{operator:path}/{state}"
    return Starlette(
        routes=[
            Route("/v1/tables", tables, methods=["GET"]),
            Route(where, one, methods=["GET"]),
            Route(where, many, methods=["POST"]),
        ],
        middleware=[Middleware(_Bearer, token=token)],
        exception_handlers={OnceflowError: _told, OSError: _told},
    )


class _Bearer:
    """Lets nobody in without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                refused = _error(401, "the token is missing or wrong: send Authorization: Bearer TOKEN")
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _name(request: Request) -> tuple[str, str]:
    return request.path_params["operator"], request.path_params["state"]


def _tables(followed: FollowedState) -> Response:
    view = followed.view
    listed = [
        {
            "operator": table.operator,
            "state": table.state,
            "kind": table.kind,
            "stored_rows": table.stored_rows,
            "is_loaded": (table.operator, table.state) in view.tables,
        }
        for table in view.stored.tables
    ]
    stored = view.stored
    head = {"checkpoint_id": stored.checkpoint_id, "completed_ms": stored.completed_ms}
    return _answer(200, {**head, "job": stored.job, "offsets": view.offsets, "tables": listed})


def _one_live(ask_live: AskLive, name: tuple[str, str], text: str | None) -> Response:
    if text is None:
        return _no_key()
    answer = ask_live(*name, [text], True)
    return _answer(200, {**answer, "rows": answer["rows"][0]})


def _no_key() -> Response:
    return _error(400, "a question needs ?key=K: give the value of the key, or a JSON object")


def _one(followed: FollowedState, name: tuple[str, str], text: str | None) -> Response:
    if text is None:
        return _no_key()
    key = key_of_text(text, followed.key_columns(*name).names)
    found = followed.find(*name, [key])
    return _answer(200, {**_head(found), "rows": found.rows.to_pylist()})


def _many(followed: FollowedState, ask_live: AskLive, name: tuple[str, str], body: bytes) -> Response:
    try:
        asked = json.loads(body)
        keys, is_live = asked["keys"], asked.get("live", False)
    except (ValueError, KeyError, TypeError, AttributeError):
        keys, is_live = None, False
    if not isinstance(keys, list) or not isinstance(is_live, bool):
        return _error(400, 'a question for many keys is a JSON object: write {"keys": [...]}')
    if is_live:
        return _answer(200, ask_live(*name, keys, False))
    found = followed.find(*name, keys)
    rows: list[list[dict[str, Any]]] = [[] for _ in keys]
    for place, row in zip(found.places.tolist(), _listed(found.rows), strict=True):
        rows[place].append(row)
    return _answer(200, {**_head(found), "rows": rows})


def _listed(rows: pa.Table) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = rows.to_pylist()
    return listed


def _head(found: Found) -> dict[str, Any]:
    return {
        "checkpoint_id": found.checkpoint_id,
        "completed_ms": found.completed_ms,
        "offsets": found.offsets,
    }


def _told(_: Request, error: Exception) -> Response:
    if isinstance(error, UnknownTableError):
        return _error(404, str(error))
    return _error(400 if isinstance(error, UsageError) else 503, str(error))


def _error(status: int, sentence: str) -> Response:
    return _answer(status, {"error": sentence})


def _answer(status: int, answer: dict[str, Any]) -> Response:
    return Response(json_text(answer), status, media_type="application/json")
