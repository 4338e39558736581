"""OpenSearchClient: requests to OpenSearch or Elasticsearch over HTTP, and what a failed one means."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import msgspec
import urllib3

from onceflow.connectors.http_headers import headers_with_variables
from onceflow.runtime.errors import Fatal, Indeterminate, OnceflowError, Retryable

_CONNECT_S = 10.0
_ANSWER_S = 60.0
_SAID_MAX = 300
_PASSING = (408, 425, 429)
_NO_RIGHT = (401, 403)
_BLOCKED = "cluster_block_exception"
"""The error where a disk is full, an index is closed to writing, or a cluster has no manager: it passes, or
somebody lifts it."""


@dataclass(frozen=True, slots=True)
class Access:
    """How the servers are reached: URLs of one cluster, headers as the user wrote them, and the file of the
    certificates that are trusted (None: the system's)."""

    urls: Sequence[str] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    ca_certs: str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `said`: its JSON, or an empty dict."""

    status: int
    said: Any


class OpenSearchClient:
    """Requests to one of the servers. May be used by several threads at once."""

    def __init__(self, access: Access, where: str, calls_max: int) -> None:
        """`where`: the sink, for messages. Connects to nothing yet. Raises Fatal for a header that names a
        variable that is not there."""
        self._where = where
        self._urls = [_without_password(url) for url in access.urls]
        headers = headers_with_variables(access.headers, os.environ, where)
        self._headers = [{**_login(url), **headers} for url in access.urls]
        self._number = 0
        """The server that is asked, by its place; another one after an error of its connection."""
        more: dict[str, Any] = {} if access.ca_certs is None else {"ca_certs": access.ca_certs}
        timeout = urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S)
        self._pool = urllib3.PoolManager(
            maxsize=calls_max, block=True, retries=False, timeout=timeout, **more
        )

    def call(self, doing: str, method: str, path: str, body: Any = None) -> Reply:
        """An answer with a status below 500, which is not 429, 401 or a redirect. `path`: of a server, with
        its parts quoted; `body`: JSON, or lines of it as bytes.

        Raises what the failure means: Retryable if nothing was done, Indeterminate if nobody knows, Fatal if
        it will fail whenever it is tried.
        """
        number = self._number
        content = "application/json" if not isinstance(body, bytes) else "application/x-ndjson"
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        try:
            answer = self._pool.request(
                method,
                self._urls[number] + path,
                body=None if body is None else data,
                headers={**self._headers[number], **({} if body is None else {"Content-Type": content})},
                redirect=False,
            )
        except urllib3.exceptions.SSLError as error:
            raise Fatal(f"{self._where}: {doing}: {_reason(error)}: correct the URL or ca_certs") from error
        except urllib3.exceptions.HTTPError as error:
            self._number = (number + 1) % len(self._urls)
            is_not_sent = isinstance(
                error, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError
            )
            kind = Retryable if is_not_sent else Indeterminate
            raise kind(f"{self._where}: {doing}: {_reason(error)}") from error
        reply = Reply(answer.status, _json(answer.data))
        failure = failure_of(reply.status, reply.said, f"{self._where}: {doing}")
        if failure is not None:
            raise failure
        return reply

    def close(self) -> None:
        self._pool.clear()


def failure_of(status: int, said: Any, doing: str) -> OnceflowError | None:
    """What a whole answer means, where it is none that its caller reads. Pure."""
    text = f"{doing}: the server answers {status}{error_text(said)}"
    if status in _PASSING:
        return Retryable(text)
    if status in _NO_RIGHT:
        if error_type(said) == _BLOCKED:
            return Retryable(text)
        return Fatal(f"{text}: correct the user, the password or the header, or give it the right")
    if status >= 500:
        return Indeterminate(text)
    if 300 <= status < 400:
        return Fatal(f"{text}: it points elsewhere: correct the URL")
    return None


def error_type(said: Any) -> str:
    """The type of the error in an answer, or in an item of one."""
    error = said.get("error") if isinstance(said, dict) else None
    return str(error.get("type", "")) if isinstance(error, dict) else ""


def error_text(said: Any) -> str:
    """The reason in an answer or an item, with the cause of it, as text behind a colon; empty if none."""
    error = said.get("error") if isinstance(said, dict) else None
    if not isinstance(error, dict):
        return f": {str(error)[:_SAID_MAX]}" if error else ""
    cause = error.get("caused_by") or {}
    reasons = [error.get("reason"), cause.get("reason")]
    return "".join(f": {str(each)[:_SAID_MAX]}" for each in reasons if each)


def in_path(name: str) -> str:
    return quote(name, safe="")


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return {"error": data[:_SAID_MAX].decode("utf-8", "replace").strip()} if data else {}


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], path=parts.path.rstrip("/")))


def _login(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    if parts.username is None:
        return {}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return dict(urllib3.make_headers(basic_auth=login))


def _reason(error: Exception) -> str:
    """What went wrong, without the repr of a connection, which has its address in memory in it."""
    text = str(error)
    return text.rpartition(">: ")[2] or type(error).__name__
