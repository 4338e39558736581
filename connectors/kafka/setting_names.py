"""The names of librdkafka's settings, and a check of what a user gave for them before any client is made."""

from __future__ import annotations

from confluent_kafka import KafkaException, Producer

from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest

_NAMES = """
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    batch.num.messages batch.size broker.address.family broker.address.ttl broker.version.fallback
    client.dns.lookup client.id client.rack compression.codec compression.level compression.type
    connections.max.idle.ms consume.callback.max.messages coordinator.query.interval.ms debug
    enable.metrics.push enable.random.seed
    enable.ssl.certificate.verification enabled_events fetch.error.backoff.ms fetch.max.bytes
    fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.protocol.type
    group.remote.assignor heartbeat.interval.ms https.ca.location https.ca.pem
    linger.ms log.connection.close log.queue log.thread.name log_level
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records message.copy.max.bytes
    message.max.bytes metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy offset.store.method offset.store.path
    offset.store.sync.interval.ms plugin.library.paths produce.offset.report
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages receive.message.max.bytes
    reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms
    retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name
    sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method
    sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
    sasl.password sasl.username security.protocol session.timeout.ms socket.blocking.max.ms
    socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores
    ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
    ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id
    ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location
    ssl.keystore.password ssl.providers ssl.sigalgs.list sticky.partitioning.linger.ms topic.blacklist
    topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
"""
LIBRDKAFKA_SETTINGS = frozenset(_NAMES.split())
"""The settings of librdkafka 2.16 that a user may give: not options.REFUSED, and no callbacks."""

_LAST = "onceflow.is.last"
"""No setting of librdkafka: it reads the others first, complains of this one, and makes no client."""


def check_settings(options: KafkaOptions, prefix: str = "") -> None:
    """Raises OptionError for a setting that librdkafka does not know, with the nearest name, or whose value
    it does not take. `prefix` is what the user writes before the names. Takes microseconds and asks no
    broker; whether settings go together is not looked at."""
    for name, value in options.librdkafka.items():
        said = _complaint(name, value)
        if said is None:
            continue
        given = f"{prefix}{name}"
        if said.startswith("No such"):
            hint = nearest(given, [prefix + known for known in sorted(LIBRDKAFKA_SETTINGS)])
            raise OptionError(
                f"librdkafka, by which onceflow speaks with Kafka, has no setting {given!r}{hint}"
            )
        raise OptionError(f"setting {given!r} can't be {options.redact(repr(value))}: {options.redact(said)}")


def _complaint(name: str, value: object) -> str | None:
    try:
        Producer({name: value, _LAST: ""})
    except KafkaException as e:
        said = str(e.args[0].str())
        return None if _LAST in said else said
    return None
