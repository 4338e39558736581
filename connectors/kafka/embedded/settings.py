"""The settings of an embedded Kafka's node, both broker and controller, on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onceflow.runtime.errors import OptionError

HOST = "127.0.0.1"
NODE = 1
"""The number of the node of a cluster of one."""

_OWNED = {
    "process.roles",
    "node.id",
    "controller.quorum.voters",
    "controller.listener.names",
    "listeners",
    "advertised.listeners",
    "log.dirs",
    "log.dir",
}

_DEFAULTS = {
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A restart after kill -9 waits for the old session to end: with the default, 9 s.
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
    # With the default the controller writes two records a second, and the broker reads them, for nothing.
    "metadata.max.idle.interval.ms": "10000",
    # The default is 128 MiB, filled with zeros while it starts. This is good for half a million keys at once.
    "log.cleaner.dedupe.buffer.size": "16777216",
}

LOG4J2 = """\
rootLogger.level=INFO
rootLogger.appenderRef.stdout.ref=stdout
appender.stdout.type=Console
appender.stdout.name=stdout
appender.stdout.layout.type=PatternLayout
appender.stdout.layout.pattern=[%d] %p %m (%c)%n%throwable
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """`listeners` maps each client listener to its port; PLAINTEXT is always there."""

    controller: int
    listeners: Mapping[str, int]

    def all(self) -> tuple[int, ...]:
        return (*self.listeners.values(), self.controller)


@dataclass(frozen=True, slots=True)
class Member:
    """One node of a cluster: its number, and the controllers' ports of all nodes by their numbers."""

    node: int
    voters: Mapping[int, int]


def server_properties(
    log_dir: Path,
    ports: Ports,
    protocols: Mapping[str, str],
    user: Mapping[str, str],
    member: Member | None = None,
) -> str:
    """The text of server.properties. The user's settings win, except those that make it this node.

    `protocols` maps each client listener to its security protocol. `member`: None for a cluster of one.
    """
    member = member or Member(NODE, {NODE: ports.controller})
    refused = sorted(_OWNED & user.keys())
    if refused:
        raise OptionError(
            f"{refused[0]} is set by the embedded broker itself: leave it out, and name further "
            "listeners in extra_listeners"
        )
    addresses = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.listeners.items())
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(member.node),
        "controller.quorum.voters": ",".join(f"{n}@{HOST}:{port}" for n, port in member.voters.items()),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{addresses},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": addresses,
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in {"CONTROLLER": "PLAINTEXT", **protocols}.items()
        ),
        "log.dirs": str(log_dir),
        **_DEFAULTS,
        **user,
    }
    return "".join(f"{name}={_escape(value)}\n" for name, value in settings.items())


def _escape(value: str) -> str:
    """Escape what java.util.Properties would eat when it reads the file: backslashes and line breaks."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
