from __future__ import annotations

import pytest

from onceflow.runtime.sockets.loopback import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.0.1.1", True),
        ("::1", True),
        ("localhost", True),
        ("192.0.2.1", False),
        ("driver", False),
        ("localhost.example", False),
    ],
)
def test_only_what_never_leaves_the_machine_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
