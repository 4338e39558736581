"""CassandraServers: statements to a cluster, and what a failed one means."""

from __future__ import annotations

import logging
import os
import ssl
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.concurrent import execute_concurrent
from cassandra.policies import (
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    TokenAwarePolicy,
)
from cassandra.query import PreparedStatement, SimpleStatement

from onceflow.connectors.cassandra.server_errors import meaning
from onceflow.runtime.errors import Fatal, Retryable

logging.getLogger("cassandra").addHandler(logging.NullHandler())  # else each failed connection is on stderr
CONSISTENCIES = ("LOCAL_QUORUM", "QUORUM", "EACH_QUORUM", "ALL")
"""Levels under which a row that was acknowledged survives the loss of a server."""
_CONNECT_S = 10.0
_ANSWER_S = 20.0
_PROTOCOL = 4
"""What every server speaks that is in use: the driver would try newer ones first, and warn at each."""
_UNDER_WAY_MAX = 128
"""Statements that are sent before the first of them is answered."""


@dataclass(frozen=True, slots=True)
class Tls:
    """See CassandraSink, whose arguments these are."""

    ca_certs: str | None
    check_hostname: bool


@dataclass(frozen=True, slots=True)
class Access:
    """See CassandraSink, whose arguments these are. `datacenter`: None for that of the first server. `tls`:
    None for connections that are not encrypted."""

    hosts: Sequence[str]
    port: int
    username: str | None
    password: str | None = field(repr=False)
    datacenter: str | None
    consistency: str
    tls: Tls | None = None


class CassandraServers:
    """See the module. One thread at a time."""

    def __init__(self, access: Access, where: str) -> None:
        """`where`: the sink, for messages. Connects to nothing yet. Raises Fatal for a password that names a
        variable that is not there."""
        self._access = access
        self._where = where
        self._login = _login(access, where)
        self._cluster: Cluster | None = None
        self._session: Session | None = None

    def open(self) -> None:
        """Connect anew. Raises Fatal for a file of certificates that can't be read."""
        self.close()
        access = self._access
        is_local = access.consistency == "LOCAL_QUORUM"
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(access.datacenter or "")),
            retry_policy=FallthroughRetryPolicy(),  # whoever calls tries again, and knows what
            consistency_level=ConsistencyLevel.name_to_value[access.consistency],
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL if is_local else ConsistencyLevel.SERIAL,
            request_timeout=_ANSWER_S,
        )
        cluster = self._cluster = Cluster(
            list(access.hosts),
            access.port,
            auth_provider=self._login,
            ssl_context=_ssl_context(access.tls, self._where),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            reconnection_policy=ConstantReconnectionPolicy(1.0, max_attempts=None),
            connect_timeout=_CONNECT_S,
            control_connection_timeout=_CONNECT_S,
            compression=False,
            protocol_version=_PROTOCOL,
        )
        try:
            self._session = cluster.connect()
        except Exception as error:
            self.close()
            raise meaning(error, f"{self._where}: connecting") from error

    def ask(self, doing: str, text: str, *values: Any, is_serial: bool = False) -> list[Any]:
        """The rows of the answer. `is_serial`: the latest that any compare-and-set has left. Raises what a
        failure means."""
        statement = SimpleStatement(text)
        if is_serial:
            is_local = self._access.consistency == "LOCAL_QUORUM"
            level = ConsistencyLevel.LOCAL_SERIAL if is_local else ConsistencyLevel.SERIAL
            statement = SimpleStatement(text, consistency_level=level)
        session = self._connected()
        try:
            return list(session.execute(statement, values or None))
        except Exception as error:
            raise meaning(error, f"{self._where}: {doing}") from error

    def prepare(self, doing: str, text: str) -> PreparedStatement:
        session = self._connected()
        try:
            return session.prepare(text)
        except Exception as error:
            raise meaning(error, f"{self._where}: {doing}") from error

    def write(self, statements: Sequence[tuple[PreparedStatement, Sequence[Any]]]) -> list[Exception | None]:
        """What each has ended with; None: done. Many are under way at once."""
        results = execute_concurrent(
            self._connected(), statements, concurrency=_UNDER_WAY_MAX, raise_on_first_error=False
        )
        return [None if done else said for done, said in results]

    def close(self) -> None:
        cluster, self._cluster, self._session = self._cluster, None, None
        if cluster is not None:
            cluster.shutdown()

    def _connected(self) -> Session:
        if self._session is None:
            raise Retryable(f"{self._where} has no connection: it is made by the next claim")
        return self._session


def _login(access: Access, where: str) -> PlainTextAuthProvider | None:
    if access.username is None:
        return None
    try:
        password = string.Template(access.password or "").substitute(os.environ)
    except KeyError as error:
        raise Fatal(
            f"{where}: the password names the environment variable {error.args[0]!r}, which is not set where "
            "the slots run: set it there"
        ) from error
    except ValueError as error:
        raise Fatal(f"{where}: the password has a $ that begins no ${{NAME}}: write $$ for it") from error
    return PlainTextAuthProvider(access.username, password)


def _ssl_context(tls: Tls | None, where: str) -> ssl.SSLContext | None:
    if tls is None:
        return None
    try:
        context = ssl.create_default_context(cafile=tls.ca_certs)
    except (OSError, ValueError) as error:
        raise Fatal(f"{where}: ca_certs {tls.ca_certs} can't be read where the slots run: {error}") from error
    context.check_hostname = tls.check_hostname
    return context
