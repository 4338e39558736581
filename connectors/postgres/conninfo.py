"""How a server is connected to: what the user says, and our defaults where that says nothing. Pure."""

from __future__ import annotations

from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 20,  # a server that is gone without a word is noticed within a minute
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


def with_defaults(conninfo: str, **settings: Any) -> str:
    """The connection string with our defaults, and with `settings`, which are not the user's to say; nor is
    the encoding: what goes to the server in binary form is UTF-8, and text comes back as text, also from a
    database that has no encoding (SQL_ASCII)."""
    settings = {"client_encoding": "utf8", **settings}
    return make_conninfo("", **{**_DEFAULTS, **conninfo_to_dict(conninfo), **settings})
