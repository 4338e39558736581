"""How a server is connected to: what the user's URL says, as the client takes it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest

_PORT = 3306
_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": 10,
    "read_timeout": 120,  # longer than any wait for a lock: a server that is gone without a word is noticed
    "write_timeout": 120,
}
_SECONDS = tuple(_DEFAULTS)
_YES_OR_NO = ("ssl_verify_cert", "ssl_verify_identity", "ssl_disabled")
_TEXTS = ("unix_socket", "read_default_file", "read_default_group", "ssl_ca", "ssl_cert", "ssl_key")
_PARAMETERS = (*_SECONDS, *_YES_OR_NO, *_TEXTS)


def connection_arguments(url: str) -> dict[str, Any]:
    """What PyMySQL's `connect` is given. Raises OptionError, which does not repeat the URL: it may have a
    password."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORT
    except ValueError as error:
        raise OptionError(f"MySqlSink: url can't be read: {error}") from error
    if parts.scheme not in ("mysql", "mariadb"):
        raise OptionError("MySqlSink: url must be as in mysql://user@host:3306/database, or mariadb://")
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise OptionError(
            "MySqlSink: url must name one database behind the host, as in mysql://user@host/shop"
        )
    arguments = {**_DEFAULTS, "host": parts.hostname or "127.0.0.1", "port": port, "database": database}
    if parts.username:
        arguments["user"] = unquote(parts.username)
    if parts.password is not None:
        arguments["password"] = unquote(parts.password)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        arguments[name] = _value(name, value)
    return arguments


def _value(name: str, value: str) -> Any:
    if name in _TEXTS and value:
        return value
    if name in _SECONDS and value.isascii() and value.isdecimal() and int(value) > 0:
        return int(value)
    if name in _YES_OR_NO and value in ("true", "false"):
        return value == "true"
    if name in _PARAMETERS:
        wanted = "whole seconds" if name in _SECONDS else "true or false" if name in _YES_OR_NO else "a text"
        raise OptionError(f"MySqlSink: {name} in url must be {wanted}, and is {value!r}")
    raise OptionError(
        f"MySqlSink: url has an unknown parameter {name!r}{nearest(name, _PARAMETERS)}: use "
        f"{', '.join(_PARAMETERS)}"
    )
