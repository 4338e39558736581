"""What errors of Redis mean."""

from __future__ import annotations

import pytest
import redis

from onceflow.connectors.redis.server_errors import meaning
from onceflow.runtime.errors import Fatal, Indeterminate, Retryable


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (redis.ConnectionError("Connection closed by server."), Indeterminate),
        (redis.TimeoutError("Timeout reading from socket"), Indeterminate),
        (redis.BusyLoadingError("Redis is loading the dataset in memory"), Retryable),
        (redis.ReadOnlyError("You can't write against a read only replica."), Retryable),
        (redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"), Retryable),
        (redis.exceptions.OutOfMemoryError("command not allowed"), Retryable),
        (redis.AuthenticationError("invalid username-password pair"), Fatal),
        (redis.exceptions.NoPermissionError("this user has no permissions"), Fatal),
        (redis.ResponseError("unknown command"), Fatal),
    ],
)
def test_what_an_error_means(error: redis.RedisError, kind: type[Exception]) -> None:
    told = meaning(error, "sink 'out': writing rows")
    assert type(told) is kind
    assert str(told).startswith("sink 'out': writing rows: ")
    assert not str(told).endswith(".")
