"""CassandraSink: what is refused when it is made, and what is no store's matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.cassandra.servers import Access, CassandraServers, Tls
from onceflow.runtime.errors import Fatal, GraphError, OptionError, Retryable
from onceflow.sinks.cassandra import CassandraSink


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": ""}, "without a key nothing can be appended exactly once"),
        ({"key": [""]}, "key must name the column"),
        ({"hosts": []}, "hosts must be names or addresses"),
        ({"hosts": "db1:9042"}, "hosts must be names or addresses, without a port"),
        ({"port": 0}, "port=0 must be a number"),
        ({"username": "ann"}, "give username and password, or neither"),
        ({"ca_certs": "ca.pem"}, "ca_certs and check_hostname are of tls"),
        ({"check_hostname": False}, "ca_certs and check_hostname are of tls"),
        ({"table": ""}, "must be a name that is not empty"),
        ({"bad_rows_to": "orders"}, "a table has two purposes"),
        ({"table": "onceflow_ledger"}, "a table has two purposes"),
        ({"consistency": "ONE"}, "consistency='ONE' must be one of LOCAL_QUORUM, .*gone in silence"),
        ({"delivery_timeout": "soon"}, "delivery_timeout='soon' is not a duration"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        CassandraSink(**{"hosts": "db1", "keyspace": "shop", "table": "orders", "key": "id", **options})


def test_columns_that_can_be_no_key_are_refused_when_the_job_is_built() -> None:
    sink = CassandraSink(["db1", "::1"], "shop", "orders", "id")
    sink.check(pa.schema([("id", pa.int64())]), "out")
    with pytest.raises(GraphError, match="key column 'id' is not in the rows"):
        sink.check(pa.schema([("ID", pa.int64())]), "out")


def test_a_password_is_in_no_text_of_it() -> None:
    sink = CassandraSink("db1", "shop", "orders", "id", "ann", "secret")
    assert "secret" not in repr(sink) + sink.plan_note


def servers(password: str) -> CassandraServers:
    return CassandraServers(Access(["127.0.0.1"], 1, "ann", password, None, "QUORUM"), "sink 'out'")


def test_a_password_may_be_a_variable_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASSANDRA_PASSWORD", "secret")
    servers("${CASSANDRA_PASSWORD}")
    with pytest.raises(Fatal, match="sink 'out': the password names the environment variable 'NONE'"):
        servers("${NONE}")
    with pytest.raises(Fatal, match=r"the password has a \$ that begins no"):
        servers("a$")


def test_a_server_that_is_away_may_come_back() -> None:
    with pytest.raises(Retryable, match="sink 'out': connecting: "):
        servers("secret").open()
    with pytest.raises(Retryable, match="has no connection: it is made by the next claim"):
        servers("secret").ask("asking", "SELECT 1")


def test_a_file_of_certificates_has_to_be_there(tmp_path: Path) -> None:
    tls = Tls(str(tmp_path / "ca.pem"), True)
    access = Access(["127.0.0.1"], 1, None, None, None, "QUORUM", tls)
    with pytest.raises(Fatal, match=r"sink 'out': ca_certs .*ca\.pem can't be read where the slots run: "):
        CassandraServers(access, "sink 'out'").open()
