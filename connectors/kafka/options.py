"""KafkaOptions: the settings we own; the rest passes through to librdkafka by its own names.

One object per connector, made where the user writes the job, read when a client is opened. It
refuses by name each setting on which a guarantee rests, and never shows a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from onceflow.runtime.errors import OptionError
from onceflow.runtime.redaction import HIDDEN, redacted

Isolation = Literal["read_committed", "read_uncommitted"]
Setting = str | int | float | bool | Callable[..., Any]
BROKER_TIMEOUT = "2 min"
"""How long brokers that are away are waited for, unless an option says so."""
FIRST_ANSWER_MS = 15_000
"""And brokers that have never answered anybody: most of them are away because their address is wrong."""

_OFFSETS = "onceflow keeps offsets in its checkpoints, so that state and position can't differ"
_COMMIT = "the sink's exactly-once commit rests on it"
_OWN = "onceflow needs it itself, to see broken connections and to explain errors"

REFUSED: Mapping[str, tuple[str, str]] = {
    "bootstrap.servers": ("it would contradict bootstrap_servers", "give bootstrap_servers instead"),
    "metadata.broker.list": ("it would contradict bootstrap_servers", "give bootstrap_servers instead"),
    "group.id": (_OFFSETS, "give group_id to the source, for lag monitors"),
    "group.instance.id": (_OFFSETS, "leave it out"),
    "group.protocol": (_OFFSETS, "leave it out: onceflow assigns partitions itself"),
    "partition.assignment.strategy": (_OFFSETS, "leave it out: onceflow assigns partitions itself"),
    "enable.auto.commit": (_OFFSETS, "leave it out"),
    "auto.commit.enable": (_OFFSETS, "leave it out"),
    "auto.commit.interval.ms": (_OFFSETS, "set the checkpoint interval instead"),
    "enable.auto.offset.store": (_OFFSETS, "leave it out"),
    "auto.offset.reset": (
        "a position that is gone must stop the job, not move it silently",
        "give start= to the source",
    ),
    "enable.partition.eof": ("bounded reading rests on it", "leave it out"),
    "isolation.level": (
        "a reader of uncommitted records can't be exactly once",
        "give isolation= to the source",
    ),
    "check.crcs": ("corrupt records must be found", "leave it out: it is on"),
    "transactional.id": (_COMMIT, "give transactional_id_prefix to the sink"),
    "transaction.timeout.ms": (_COMMIT, "give transaction_timeout to the sink"),
    "enable.idempotence": (_COMMIT, "leave it out: it is on"),
    "enable.gapless.guarantee": (_COMMIT, "leave it out"),
    "acks": (_COMMIT, "leave it out: it is all"),
    "request.required.acks": (_COMMIT, "leave it out: it is all"),
    "retries": (_COMMIT, "leave it out, and give delivery_timeout to the sink"),
    "message.send.max.retries": (_COMMIT, "leave it out, and give delivery_timeout to the sink"),
    "message.timeout.ms": (_COMMIT, "give transaction_timeout to the sink"),
    "delivery.timeout.ms": (_COMMIT, "give transaction_timeout to the sink"),
    "max.in.flight": (_COMMIT, "leave it out"),
    "max.in.flight.requests.per.connection": (_COMMIT, "leave it out"),
    "delivery.report.only.error": (_COMMIT, "leave it out"),
    "queuing.strategy": (_COMMIT, "leave it out"),
    "partitioner": ("rows are partitioned before librdkafka sees them", "give partitioner= to the sink"),
    "statistics.interval.ms": (_OWN, "leave it out"),
    "stats_cb": (_OWN, "leave it out"),
    "error_cb": (_OWN, "leave it out"),
    "logger": (_OWN, "leave it out"),
    "log_cb": (_OWN, "leave it out"),
    "on_delivery": (_OWN, "leave it out"),
    "dr_cb": (_OWN, "leave it out"),
    "dr_msg_cb": (_OWN, "leave it out"),
}
"""Setting -> (why it is refused, what to do)."""

ADMIN: Mapping[str, Setting] = {"enable.sparse.connections": False}
"""An admin request that has to go to a broker which is away (the controller, or a leader) makes librdkafka
look for it at each change of a connection's state. Looking for it connects at once, past every backoff,
and a refused connection is such a change: 20,000 connects a second for as long as the request lasts. A
client that holds its connections open by itself does not do so: it connects by the backoff alone."""

ADMIN_DEFAULTS: Mapping[str, Setting] = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 1_000}

_CONSUMER_ONLY = re.compile(
    r"fetch\..*|queued\.(min|max)\..*|max\.partition\.fetch\.bytes|max\.poll\.interval\.ms"
    r"|session\.timeout\.ms|heartbeat\.interval\.ms|coordinator\.query\.interval\.ms|group\..*"
    r"|consume\..*"
)
_PRODUCER_ONLY = re.compile(
    r"linger\.ms|queue\.buffering\..*|batch\..*|compression\..*|sticky\..*|request\.timeout\.ms"
)
_ADDRESS = re.compile(
    r"(?:(?:plaintext|ssl|sasl_plaintext|sasl_ssl)://)?(?:\[[0-9a-f:.%]+\]|[^\s:/\[\]]+)(?::(?P<port>\d+))?",
    re.IGNORECASE,
)
_PORT_MAX = 65_535
_SECRET = re.compile(r"password|secret|token|\.pem|jaas|oauthbearer\.config|assertion|passphrase")


@dataclass(frozen=True, slots=True, repr=False)
class KafkaOptions:
    """Where the brokers are, and how to speak with them.

    `librdkafka` holds settings by librdkafka's own names (SASL, SSL, fetch sizes, linger, compression).
    A setting for consumers only is left out of producers, and the other way round. Raises OptionError
    for a setting in REFUSED, naming the reason and what to do instead.
    """

    bootstrap_servers: str
    librdkafka: Mapping[str, Setting] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.bootstrap_servers, str) or not self.bootstrap_servers.strip():
            raise OptionError('bootstrap_servers must be text such as "localhost:9092,other:9092"')
        _check_addresses(self.bootstrap_servers)
        object.__setattr__(self, "librdkafka", dict(self.librdkafka))
        for name, value in self.librdkafka.items():
            if name in REFUSED:
                reason, advice = REFUSED[name]
                raise OptionError(f"librdkafka setting {name!r} can't be given: {reason}; {advice}")
            if not isinstance(value, (str, int, float, bool)) and not callable(value):
                raise OptionError(
                    f"librdkafka setting {name!r} must be text, a number or a truth value, "
                    f"not {type(value).__name__}"
                )
        _check_login(self.librdkafka)

    def __repr__(self) -> str:
        return f"KafkaOptions({self.bootstrap_servers!r}, {self.shown()!r})"

    def shown(self) -> dict[str, object]:
        """The settings with secrets masked: what may appear in a plan, a log or an error."""
        return {name: HIDDEN if _SECRET.search(name) else value for name, value in self.librdkafka.items()}

    def redact(self, text: str) -> str:
        """`text` without any secret of these settings: for every message that librdkafka wrote."""
        secrets = [str(value) for name, value in self.librdkafka.items() if _SECRET.search(name) and value]
        return redacted(text, secrets)

    def consumer(
        self, ours: Mapping[str, Setting], defaults: Mapping[str, Setting] | None = None
    ) -> dict[str, Any]:
        """The dict for confluent_kafka.Consumer. `ours` can't be overridden, `defaults` can."""
        return self._merged(ours, defaults, _PRODUCER_ONLY)

    def assigned_consumer(
        self,
        group_id: str,
        isolation: Isolation,
        defaults: Mapping[str, Setting] | None = None,
        logger: Any = None,
    ) -> dict[str, Any]:
        """The dict for a Consumer whose partitions are assigned by hand, each at an offset that is there, and
        which is told of their ends. `group_id` is never joined: confluent-kafka asks for one all the same."""
        ours: dict[str, Setting] = {
            "group.id": group_id,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            **({} if logger is None else {"logger": logger}),
        }
        return self.consumer(ours, defaults)

    def producer(
        self, ours: Mapping[str, Setting], defaults: Mapping[str, Setting] | None = None
    ) -> dict[str, Any]:
        """The dict for confluent_kafka.Producer. `ours` can't be overridden, `defaults` can."""
        return self._merged(ours, defaults, _CONSUMER_ONLY)

    def of_producers(self) -> dict[str, Setting]:
        """What the user gave that is for producers, too."""
        return {name: value for name, value in self.librdkafka.items() if not _CONSUMER_ONLY.fullmatch(name)}

    def admin(self, ours: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The dict for confluent_kafka.admin.AdminClient: the only way to make one (see ADMIN)."""
        merged = self._merged({**(ours or {}), **ADMIN}, ADMIN_DEFAULTS, _CONSUMER_ONLY)
        return {name: value for name, value in merged.items() if not _PRODUCER_ONLY.fullmatch(name)}

    def _merged(
        self, ours: Mapping[str, Setting], defaults: Mapping[str, Setting] | None, leave_out: re.Pattern[str]
    ) -> dict[str, Any]:
        theirs = {name: value for name, value in self.librdkafka.items() if not leave_out.fullmatch(name)}
        return {"bootstrap.servers": self.bootstrap_servers, **(defaults or {}), **theirs, **ours}


def _check_addresses(servers: str) -> None:
    """OptionError for what librdkafka would leave out without a word, to say then that it knows no broker."""
    for each in filter(None, map(str.strip, servers.split(","))):
        found = _ADDRESS.fullmatch(each)
        if found is None or not 0 < int(found["port"] or 1) <= _PORT_MAX:
            raise OptionError(
                f"bootstrap_servers={servers!r}: {each!r} is not the address of a broker: write HOST:PORT, "
                'as in "localhost:9092,other:9092"'
            )


def _check_login(settings: Mapping[str, Setting]) -> None:
    """OptionError if nobody says how to log in: librdkafka would take Kerberos, and then tell that it has to
    be compiled anew."""
    protocol = str(settings.get("security.protocol", "")).upper()
    if protocol.startswith("SASL") and not settings.keys() & {"sasl.mechanism", "sasl.mechanisms"}:
        raise OptionError(
            f"security.protocol={protocol} without sasl.mechanism: set it to how the brokers let clients log "
            "in, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER (or GSSAPI, if your librdkafka has it)"
        )
