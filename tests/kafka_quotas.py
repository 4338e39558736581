"""Quotas of a client of real brokers, as an operator sets them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaAdminClient
from kafka.protocol.admin import AlterClientQuotasRequest


@contextmanager
def quotas(servers: str, client_id: str, **rates: float) -> Iterator[None]:
    """Meanwhile the client may do no more than this: `producer_byte_rate=20_000`. A broker that has muted a
    connection does so until the end of what it announced, also if the quota is gone sooner."""
    _alter(servers, client_id, rates, remove=False)
    try:
        yield
    finally:
        _alter(servers, client_id, rates, remove=True)


def _alter(servers: str, client_id: str, rates: dict[str, float], remove: bool) -> None:
    entry: Any = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type="client-id", entity_name=client_id)],
                ops=[entry.OpData(key=name, value=rate, remove=remove) for name, rate in rates.items()],
            )
        ],
        validate_only=False,
    )
    admin: Any = KafkaAdminClient(bootstrap_servers=servers.split(","))

    async def ask() -> list[int]:
        response = await admin._manager.send(request)
        return [each.error_code for each in response.entries]

    with closing(admin):
        assert admin._manager.run(ask) == [0]
