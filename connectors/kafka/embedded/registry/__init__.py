"""A schema registry beside the embedded broker: Confluent's HTTP interface on loopback, one file of state.

It is for a first day and for tests: one process, no accounts, no encryption. What clients of Confluent's
interface ask is in `requests.py`, which schema may follow which in `rules.py`.
"""

from onceflow.connectors.kafka.embedded.registry.registry_process import (
    EmbeddedRegistry,
    running_registry,
    stop_registry,
)

__all__ = ["EmbeddedRegistry", "running_registry", "stop_registry"]
