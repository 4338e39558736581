"""What a URL of MySQL says, and which are refused."""

from __future__ import annotations

import pytest

from onceflow.connectors.mysql.server_url import connection_arguments
from onceflow.runtime.errors import OptionError


def test_each_part_of_it_is_read() -> None:
    url = (
        "mariadb://an%40n:"
        + "p%2Fw@db:3307/shop%20a?ssl_ca=/ca.pem&connect_timeout=3&ssl_verify_identity=true"
    )
    assert connection_arguments(url) == {
        "host": "db",
        "port": 3307,
        "user": "an@n",
        "password": "p/w",
        "database": "shop a",
        "ssl_ca": "/ca.pem",
        "ssl_verify_identity": True,
        "connect_timeout": 3,
        "read_timeout": 120,
        "write_timeout": 120,
    }


def test_what_it_does_not_say_is_left_to_the_client() -> None:
    arguments = connection_arguments("mysql:///shop")
    assert (arguments["host"], arguments["port"]) == ("127.0.0.1", 3306)
    assert not {"user", "password"} & set(arguments)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://h/d", "must be as in mysql://user@host:3306/database"),
        ("mysql://h", "must name one database behind the host"),
        ("mysql://h/a/b", "must name one database behind the host"),
        ("mysql://h:x/d", "url can't be read"),
        ("mysql://h/d?ssl_cs=x", "unknown parameter 'ssl_cs' (did you mean 'ssl_ca'?)"),
        ("mysql://h/d?read_timeout=soon", "read_timeout in url must be whole seconds, and is 'soon'"),
        ("mysql://h/d?ssl_verify_cert=1", "must be true or false, and is '1'"),
    ],
)
def test_what_can_not_be_used_is_refused_without_the_password(url: str, sentence: str) -> None:
    with pytest.raises(OptionError, match="MySqlSink: ") as refused:
        connection_arguments(url.replace("://h", "://u:secret@h"))
    assert sentence in str(refused.value)
    assert "secret" not in str(refused.value)
