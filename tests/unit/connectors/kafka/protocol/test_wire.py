"""Frames, headers and versions of Kafka's protocol, against kafka-python's own encoding of it."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from onceflow.connectors.kafka.protocol.wire import ProtocolError, spoken_versions, versions_request


def test_versions_are_asked_for_and_found() -> None:
    read: Any = ApiVersionsRequest.decode(versions_request(3, "me"), version=0, header=True, framed=True)
    assert (read.header.correlation_id, read.header.client_id) == (3, "me")
    keys = [
        ApiVersionsResponse[0].ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, low, high in [(0, 3, 11), (1, 4, 18), (2, 0, 9)]
    ]
    made: Any = ApiVersionsResponse[0](error_code=0, api_keys=keys)
    frame = memoryview(b"\0\0\0\3" + made.encode(version=0))
    assert spoken_versions(frame) == {0: (3, 11), 1: (4, 18), 2: (0, 9)}
    with pytest.raises(ProtocolError):
        spoken_versions(frame[:-7])
    with pytest.raises(ProtocolError, match="error 35"):
        spoken_versions(memoryview(b"\0\0\0\3\0\x23\0\0\0\0"))
