"""The Kafka that many tests share and leave alive: in a container where there is an engine, else a process.

Tests that kill, freeze or starve a broker have processes of their own: a signal is what they are about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.embedded.jars import JarCache
from onceflow.connectors.kafka.embedded.topics import create_topic
from onceflow.runtime.errors import UsageError
from onceflow.testing.container_broker import container_broker
from tests.server_container import hindrance

# An embedded broker is shut out after a silent second, so as to be soon back after a kill. This one is never
# killed, but starved where many tests share few cores: partitions then had no leader for a moment, and a
# librdkafka client that looked just then never found it again (its issue 5430).
_PROPERTIES = {"broker.session.timeout.ms": "120000", "broker.heartbeat.interval.ms": "2000"}


@dataclass(frozen=True)
class SharedBroker:
    bootstrap_servers: str
    runs_as: str
    """What the summary of the tests says: as what it runs, and why."""

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        return create_topic(self.bootstrap_servers, topic, partitions, config or {})


@contextmanager
def shared_broker(
    kind: str, image: str, version: str, cache: JarCache, folder: Path
) -> Iterator[SharedBroker]:
    """`kind`: `process`, `container` (or UsageError), or `auto`: a container if an engine is here that has
    the image or can pull it."""
    with ExitStack() as stack:
        why = "as asked for" if kind == "process" else hindrance(image)
        if kind == "container" and why:
            raise UsageError(f"there is no container of {image}: {why}")
        if not why:
            try:
                address = stack.enter_context(container_broker(image, _PROPERTIES))
            except UsageError as error:
                if kind == "container":
                    raise
                why = str(error)
            else:
                yield SharedBroker(address, f"in a container, {image}")
                return
        kafka = EmbeddedKafka(folder, version=version, jar_cache=cache, properties=_PROPERTIES)
        stack.enter_context(kafka)
        yield SharedBroker(kafka.bootstrap_servers, f"as a process, Kafka {version}: {why}")
