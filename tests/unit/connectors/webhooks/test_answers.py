"""What a receiver's answers mean."""

from __future__ import annotations

import pytest

from onceflow.connectors.webhooks.answers import RefusedError, meaning
from onceflow.runtime.errors import Fatal, Retryable


@pytest.mark.parametrize(
    ("statuses", "kind"),
    [
        ((200, 201, 204), None),
        ((408, 409, 423, 425, 429, 500, 502, 503, 504), Retryable),
        ((301, 307, 401, 403, 404, 405, 410), Fatal),
        ((400, 406, 411, 413, 415, 418, 422), RefusedError),
    ],
)
def test_what_an_answer_means(statuses: tuple[int, ...], kind: type[Exception] | None) -> None:
    for status in statuses:
        told = meaning(status, b"no\n such  amount", "sink 'out'")
        assert (None if told is None else type(told)) is kind, status
        if told is not None:
            assert f"the receiver answers {status} (no such amount)" in str(told)
