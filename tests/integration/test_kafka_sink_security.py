"""SASL_SSL from end to end, and what the user is told when a password, a CA or an ACL is missing."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from benchmarks.secured import write_certificate
from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka import KafkaSource
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.transactions.sink_topics import LEDGER_TOPIC
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.errors import Fatal
from onceflow.runtime.records import Records
from onceflow.sinks.kafka import KafkaSink
from tests.integration.test_kafka_sink_crashes import dump

pytestmark = pytest.mark.kafka

PASSWORD = "pass-4711"
MODULE = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed ca.pem for 127.0.0.1 and the broker's keystore.pem."""
    folder = tmp_path_factory.mktemp("tls")
    write_certificate(folder)
    return folder


@pytest.fixture(scope="module")
def secure(module_broker: Callable[..., EmbeddedKafka], certificate: Path) -> EmbeddedKafka:
    """SASL_SSL with SCRAM and ACLs beside an open listener for the test itself."""
    scram = f'{MODULE}.scram.ScramLoginModule required username="admin" password="{PASSWORD}";'
    return module_broker(
        extra_listeners={"SECURE": "SASL_SSL"},
        format_arguments=("--add-scram", f"SCRAM-SHA-512=[name=writer,password={PASSWORD}]"),
        properties={
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.secure.scram-sha-512.sasl.jaas.config": scram,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate / "keystore.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificate / "ca.pem"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )


@pytest.fixture
def topic(secure: EmbeddedKafka) -> str:
    return secure.create_topic(f"out-{uuid.uuid4().hex[:8]}")


def settings(certificate: Path, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "writer",
        "sasl.password": password,
        "ssl.ca.location": str(certificate / "ca.pem"),
    }


def allowed(topic: str) -> dict[str, tuple[ResourceType, str, ResourcePatternType, AclOperation]]:
    """What the sink's user needs, and no more; the names are those of the documentation."""
    group, literal = ResourceType.GROUP, ResourcePatternType.LITERAL
    prefixed, transactional = ResourcePatternType.PREFIXED, ResourceType.TRANSACTIONAL_ID
    return {
        "WRITE on TransactionalId": (transactional, "secure.", prefixed, AclOperation.WRITE),
        "READ on Group": (group, "secure.", prefixed, AclOperation.READ),
        "READ on ledger": (ResourceType.TOPIC, LEDGER_TOPIC, literal, AclOperation.READ),
        "WRITE on output": (ResourceType.TOPIC, topic, literal, AclOperation.WRITE),
    }


@pytest.fixture
def grant(secure: EmbeddedKafka) -> Iterator[Callable[..., None]]:
    admin = AdminClient({"bootstrap.servers": secure.bootstrap_servers, "log_level": 0})
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )

    def clear() -> None:
        for future in admin.delete_acls([everything]).values():
            future.result()

    def grant_acls(acls: list[Any]) -> None:
        clear()
        bindings = [
            AclBinding(kind, name, pattern, "User:writer", "*", operation, AclPermissionType.ALLOW)
            for kind, name, pattern, operation in acls
        ]
        for future in admin.create_acls(bindings).values():
            future.result()

    if LEDGER_TOPIC not in admin.list_topics(timeout=240).topics:
        secure.create_topic(LEDGER_TOPIC, 2)
    yield grant_acls
    clear()


def write_once(
    secure: EmbeddedKafka, topic: str, librdkafka: dict[str, Any], *, two_phase: bool = False
) -> None:
    """An attempt from its start to its first commit."""
    sink = KafkaSink(
        secure.address("SECURE"),
        topic,
        transactional_id_prefix="secure",
        delivery_timeout="25 s",
        two_phase=two_phase,
        librdkafka=librdkafka,
    )
    lineage = uuid.uuid4().hex[:8]
    files = AttemptStagedFiles(MemoryStore(lineage), 1, "out", 0)
    writer = sink.open_writer(
        SinkContext("job", lineage, "out", 0, 1, 1, 0, files, SystemClock(), pa.schema([]))
    )
    try:
        writer.recover([])
        writer.write(Records(pa.RecordBatch.from_pydict({"n": [1, 2]})))
        writer.pre_commit(1).stage()
        writer.commit(1)
    finally:
        writer.close()


@pytest.mark.parametrize("two_phase", [False, True])
def test_sasl_ssl_from_end_to_end_with_the_four_documented_acls(
    secure: EmbeddedKafka, certificate: Path, topic: str, grant: Callable[..., None], two_phase: bool
) -> None:
    grant(list(allowed(topic).values()))
    write_once(secure, topic, settings(certificate), two_phase=two_phase)
    assert [row["n"] for row in dump(secure.bootstrap_servers, topic)] == [1, 2]


@pytest.mark.parametrize("two_phase", [False, True])
@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("WRITE on TransactionalId", r"lacks WRITE.* on TransactionalId secure\.out\.\w+\.0"),
        ("READ on Group", r"lacks READ on Group secure\.out\.\w+\.0"),
        ("READ on ledger", r"lacks .*Topic onceflow-ledger"),
        ("WRITE on output", r"lacks .*Topic out-"),
    ],
)
def test_missing_acl_is_named(
    secure: EmbeddedKafka,
    certificate: Path,
    topic: str,
    grant: Callable[..., None],
    missing: str,
    said: str,
    two_phase: bool,
) -> None:
    grant([acl for name, acl in allowed(topic).items() if name != missing])
    with pytest.raises(Fatal, match=said) as raised:
        write_once(secure, topic, settings(certificate), two_phase=two_phase)
    assert PASSWORD not in str(raised.value)


def test_write_missing_but_describe_there_is_named(
    secure: EmbeddedKafka, certificate: Path, topic: str, grant: Callable[..., None]
) -> None:
    acls = allowed(topic)
    kind, name, pattern, _ = acls["WRITE on output"]
    grant(
        [
            *(a for n, a in acls.items() if n != "WRITE on output"),
            (kind, name, pattern, AclOperation.DESCRIBE),
        ]
    )
    with pytest.raises(Fatal, match=r"lacks WRITE.*on Topic out-"):
        write_once(secure, topic, settings(certificate))


def test_wrong_password_and_wrong_ca_are_said(
    secure: EmbeddedKafka, certificate: Path, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(Fatal, match=r"sasl\.password") as raised:
        write_once(secure, topic, settings(certificate, password="wrong-0815"))
    assert "wrong-0815" not in str(raised.value)
    with pytest.raises(Fatal, match=r"ssl\.ca\.location"):
        write_once(secure, topic, {k: v for k, v in settings(certificate).items() if k != "ssl.ca.location"})


def wrong_settings(certificate: Path, wrong: str) -> dict[str, Any]:
    """All is right but for this setting."""
    if wrong == "sasl.password":
        return settings(certificate, "wrong-0815")
    return {name: value for name, value in settings(certificate).items() if name != wrong}


@pytest.mark.parametrize("wrong", ["sasl.password", "ssl.ca.location"])
def test_a_source_is_refused_at_its_first_question_and_names_the_setting(
    secure: EmbeddedKafka, certificate: Path, topic: str, wrong: str
) -> None:
    """An unknown certificate authority looked like a broker that is away: twelve attempts of 15 s."""
    source = KafkaSource(
        bootstrap_servers=secure.address("SECURE"),
        topics=topic,
        value=Raw(),
        librdkafka=wrong_settings(certificate, wrong),
    )
    enumerator = source.open_enumerator("job", SystemClock())
    with pytest.raises(Fatal, match=re.escape(wrong)) as raised:
        enumerator.initial_splits()
    enumerator.close()
    assert "wrong-0815" not in str(raised.value)


@pytest.mark.parametrize("host", ["threads[2]", pytest.param("local[2]", marks=pytest.mark.spark)])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("sasl.password", "SASL authentication error: Authentication failed"),
        ("ssl.ca.location", "certificate verify failed"),
    ],
)
def test_a_job_that_the_brokers_refuse_ends_at_once_with_one_sentence(
    secure: EmbeddedKafka,
    certificate: Path,
    topic: str,
    start_job: Any,
    tmp_path: Path,
    wrong: str,
    said: str,
    host: str,
) -> None:
    arguments = ("--bootstrap-servers", secure.address("SECURE"), "--input", topic, "--output", topic)
    env = {"TEST_LIBRDKAFKA": json.dumps(wrong_settings(certificate, wrong))}
    job = start_job(tmp_path / "ck", *arguments, env=env, master=host)
    assert job.wait(100) == 1, job.story()
    assert len(job.named("attempt_started")) <= 1, job.story()
    assert not job.named("attempt_failed"), job.story()
    (sentence,) = [line for line in job.errors().splitlines() if "refuse each other" in line]
    assert said in sentence
    assert wrong in sentence
    assert "Traceback" not in job.errors()
    assert "wrong-0815" not in job.errors() + "".join(job.lines)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_missing_acls_are_named_through_spark_before_anything_is_written(
    secure: EmbeddedKafka,
    certificate: Path,
    topic: str,
    grant: Callable[..., None],
    spark: Any,
    tmp_path: Path,
) -> None:
    connection = {f"kafka.{name}": value for name, value in settings(certificate).items()}
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "rows.json").write_text('{"n": 1}\n')

    def run(**options: str) -> None:
        rows = spark.readStream.schema("n long").json(str(tmp_path / "input"))
        given = {
            "bootstrap_servers": secure.address("SECURE"),
            "topic": topic,
            "uid": topic,
            "format": "json",
        }
        given |= {"transactional_id_prefix": "secure", "delivery_timeout": "25 s"}
        given |= {"checkpointLocation": str(tmp_path / "checkpoint"), **connection, **options}
        query = rows.writeStream.format("onceflow-kafka").options(**given).trigger(availableNow=True).start()
        query.awaitTermination(200)

    said = {
        "WRITE on TransactionalId": r"lacks WRITE.* on TransactionalId secure\.out-",
        "READ on Group": r"lacks READ on Group secure\.out-",
        "READ on ledger": r"lacks .*Topic onceflow-ledger",
        "WRITE on output": r"lacks .*Topic out-",
    }
    for missing, sentence in said.items():
        grant([acl for name, acl in allowed(topic).items() if name != missing])
        with pytest.raises(Exception, match=sentence) as raised:
            run()
        assert PASSWORD not in str(raised.value)
    with pytest.raises(Exception, match=r"sasl\.password") as raised:
        run(**{"kafka.sasl.password": "wrong-0815"})
    assert "wrong-0815" not in str(raised.value)
    grant(list(allowed(topic).values()))
    run()
