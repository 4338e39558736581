"""The embedded broker's promises: quick, restartable after kill -9, and clear when it can't start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.embedded.jars import FetchError, JarCache, pinned_jars
from onceflow.connectors.kafka.embedded.ports import free_port
from onceflow.connectors.kafka.embedded.process import (
    BrokerError,
    BrokerProcess,
    answers,
    cluster_id_of,
    require_space,
    running_broker,
    stop_broker,
)
from onceflow.runtime.environment.java import JavaError, find_java
from onceflow.runtime.errors import OptionError, UsageError

pytestmark = pytest.mark.kafka

StartBroker = Callable[..., EmbeddedKafka]


def write(kafka: EmbeddedKafka, topic: str, values: list[str], transactional_id: str | None = None) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
    if transactional_id is None:
        producer = Producer(settings)
    else:
        producer = Producer({**settings, "transactional.id": transactional_id})
        producer.init_transactions(30)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    if transactional_id is not None:
        producer.commit_transaction(30)


def read(kafka: EmbeddedKafka, topic: str) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "test", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        values.append(message.value().decode())
    consumer.close()
    return values


def mirror_of(folder: Path, version: str, content: Callable[[str], bytes]) -> str:
    """A Maven repository, on this disk, with the content that goes by these names; its URL."""
    for coordinates in pinned_jars(version):
        organisation, name, revision = coordinates.split(":")
        place = folder / organisation.replace(".", "/") / name / revision
        place.mkdir(parents=True)
        jar = f"{name}-{revision}.jar"
        (place / jar).write_bytes(content(jar))
    return folder.as_uri() + "/"


def test_it_answers_when_start_returns_and_listens_on_loopback_only(
    own_broker: StartBroker, broker: EmbeddedKafka
) -> None:
    """The shared broker has fetched the jars by now, so this start is from the cache. How long it takes is
    printed and not asserted: a test must not depend on what else the machine does."""
    started = time.monotonic()
    kafka = own_broker()
    print(f"ready in {time.monotonic() - started:.1f} s")
    assert kafka.create_topic("answers") == "answers"
    assert kafka.bootstrap_servers.startswith("127.0.0.1:")
    assert kafka.log_file.stat().st_size > 0


def test_records_and_committed_transactions_survive_kill_9(own_broker: StartBroker) -> None:
    kafka = own_broker()
    topic = kafka.create_topic("kept")
    write(kafka, topic, ["a", "b"])
    write(kafka, topic, ["c"], transactional_id="t")
    address, first_pid = kafka.bootstrap_servers, kafka.pid
    kafka.kill()
    kafka.start()
    assert (kafka.bootstrap_servers, kafka.pid != first_pid) == (address, True)
    write(kafka, topic, ["d"], transactional_id="t")
    assert read(kafka, topic) == ["a", "b", "c", "d"]


def test_another_object_goes_on_with_the_data_after_a_clean_stop(
    own_broker: StartBroker, tmp_path: Path
) -> None:
    first = own_broker(tmp_path)
    write(first, first.create_topic("kept"), ["a"])
    first.stop()
    assert not first.is_running
    assert running_broker(tmp_path) is None
    assert read(own_broker(tmp_path), "kept") == ["a"]


def test_a_frozen_broker_does_not_answer_and_goes_on_when_resumed(own_broker: StartBroker) -> None:
    kafka = own_broker()
    topic = kafka.create_topic("frozen")
    kafka.pause()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "t", "log_level": 0})
    with pytest.raises(KafkaException):
        consumer.list_topics(topic, timeout=0.5)
    kafka.resume()
    assert topic in consumer.list_topics(topic, timeout=120).topics
    consumer.close()


def test_a_frozen_broker_can_be_stopped(own_broker: StartBroker) -> None:
    kafka = own_broker()
    kafka.pause()
    kafka.stop()
    assert not kafka.is_running


def test_a_port_in_use_is_named_with_its_process(own_broker: StartBroker) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(BrokerError, match=f"port {port} is in use") as caught:
            own_broker(port=port)
        assert sys.platform == "darwin" or f"process {os.getpid()}" in str(caught.value)


def test_a_folder_in_use_is_refused_with_the_process_that_holds_it(
    own_broker: StartBroker, tmp_path: Path
) -> None:
    kafka = own_broker(tmp_path)
    with pytest.raises(BrokerError, match=rf"already runs on .* \(process {kafka.pid}"):
        own_broker(tmp_path)


def test_a_stale_lock_of_a_dead_process_is_cleaned_up(own_broker: StartBroker, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    tmp_path.mkdir(exist_ok=True)
    BrokerProcess(ended.pid, time.time(), "4.2.1", {"PLAINTEXT": 1}).save(tmp_path)
    assert own_broker(tmp_path).is_running


def test_a_pid_that_now_belongs_to_another_process_is_not_a_broker(tmp_path: Path) -> None:
    BrokerProcess(os.getpid(), 1_000.0, "4.2.1", {"PLAINTEXT": 1}).save(tmp_path)
    assert running_broker(tmp_path) is None
    assert stop_broker(tmp_path) is None


def test_a_kafka_that_onceflow_did_not_start_holds_its_lock(own_broker: StartBroker, tmp_path: Path) -> None:
    first = own_broker(tmp_path)
    (tmp_path / "broker.json").unlink()
    topic = first.create_topic("kept")
    with pytest.raises(BrokerError, match="holds the lock of the data folder"):
        own_broker(tmp_path)
    write(first, topic, ["a"])
    first.stop()
    write(own_broker(tmp_path), topic, ["b"])


def test_anothers_broker_on_our_port_is_not_taken_for_ours(own_broker: StartBroker, tmp_path: Path) -> None:
    kafka = own_broker(tmp_path)
    cluster_id = cluster_id_of(tmp_path / "logs")
    assert answers(kafka.bootstrap_servers, cluster_id)
    assert not answers(kafka.bootstrap_servers, cluster_id[::-1])


def test_a_full_disk_is_named_before_kafka_starts(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"the disk of .* is full: \d+ MiB are free"):
        require_space(tmp_path, 2**62)


def test_a_start_that_fails_leaves_nothing_running_and_says_why(
    own_broker: StartBroker, tmp_path: Path
) -> None:
    with pytest.raises(BrokerError, match=r"ended while starting: .*missing\.Authorizer"):
        own_broker(tmp_path, properties={"authorizer.class.name": "missing.Authorizer"})
    assert running_broker(tmp_path) is None
    assert own_broker(tmp_path).is_running


def test_a_setting_that_kafka_refuses_is_named(own_broker: StartBroker, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"can't be formatted: .*log\.retention\.ms"):
        own_broker(tmp_path, properties={"log.retention.ms": "soon"})


def test_settings_that_make_it_one_node_are_refused_by_name(own_broker: StartBroker) -> None:
    with pytest.raises(OptionError, match=r"node\.id is set by the embedded broker"):
        own_broker(properties={"node.id": "7"})


def test_a_further_listener_has_its_own_address(own_broker: StartBroker) -> None:
    kafka = own_broker(extra_listeners={"SECOND": "PLAINTEXT"})
    assert kafka.address("SECOND") != kafka.bootstrap_servers
    consumer = Consumer({"bootstrap.servers": kafka.address("SECOND"), "group.id": "t"})
    assert consumer.list_topics(timeout=120).brokers[1].port == int(kafka.address("SECOND").split(":")[1])
    consumer.close()


def test_a_damaged_cache_is_fetched_again(jar_cache: JarCache, kafka_version: str, tmp_path: Path) -> None:
    """A jar cut short, as by a disk that was full, must not reach Kafka's class path."""
    java = find_java()
    present = {jar.name: jar for jar in jar_cache.jars(kafka_version, java)}
    mirror = mirror_of(tmp_path / "mirror", kafka_version, lambda name: present[name].read_bytes())
    cache = JarCache(tmp_path / "cache", mirror)
    assert not cache.has(kafka_version)
    first, *_ = cache.jars(kafka_version, java)
    whole = first.read_bytes()
    first.write_bytes(whole[:-1])
    again, *_ = cache.jars(kafka_version, java)
    assert again == first
    assert again.read_bytes() == whole
    left = [entry.name for entry in cache.folder.iterdir()]
    assert left == [first.parent.name], "a scratch folder was left"


def test_a_repository_that_lies_keeps_nothing(tmp_path: Path, kafka_version: str) -> None:
    """A mirror that serves something else under the right names is refused by its SHA-256."""
    mirror = mirror_of(tmp_path / "mirror", kafka_version, lambda name: b"not the jar")
    cache = JarCache(tmp_path / "cache", mirror)
    with pytest.raises(FetchError, match="is not the pinned file"):
        cache.jars(kafka_version, find_java())
    assert not any((tmp_path / "cache").iterdir())


def test_a_repository_that_is_away_is_named(tmp_path: Path, kafka_version: str) -> None:
    cache = JarCache(tmp_path / "cache", f"http://127.0.0.1:{free_port()}/")
    with pytest.raises(FetchError, match=r"can't be fetched from http://127.0.0.1.*ONCEFLOW_MAVEN_MIRROR"):
        cache.jars(kafka_version, find_java())
    assert not any((tmp_path / "cache").iterdir())


def test_a_version_that_is_not_pinned_is_refused(own_broker: StartBroker) -> None:
    with pytest.raises(UsageError, match=r"Kafka 1\.0\.0 is not pinned for embedding: use one of 4\.2\.1"):
        own_broker(version="1.0.0")


def test_no_java_says_what_is_needed_and_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match=r"Java 17 .* none was found.*apt.*dnf.*brew"):
        find_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16"])
def test_an_old_java_is_named_with_its_version(tmp_path: Path, version: str) -> None:
    _fake_java(tmp_path, f'openjdk version "{version}" 2020-01-01')
    with pytest.raises(JavaError, match=rf"Java 17 .* is Java {version}"):
        find_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize("version", ["17.0.15", "25-ea", "21"])
def test_a_new_enough_java_is_taken(tmp_path: Path, version: str) -> None:
    _fake_java(tmp_path, f'openjdk version "{version}" 2020-01-01')
    assert find_java({"JAVA_HOME": str(tmp_path)}).version == version


def test_a_java_that_is_only_a_signpost_is_no_java(tmp_path: Path) -> None:
    """macOS has such a one: an executable that says where to get a Java."""
    _fake_java(tmp_path, "Unable to locate a Java Runtime.")
    with pytest.raises(JavaError, match="is not a working Java"):
        find_java({"JAVA_HOME": str(tmp_path)})


def _fake_java(home: Path, says: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n", encoding="utf-8")
    java.chmod(0o755)
