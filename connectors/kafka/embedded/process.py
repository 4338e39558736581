"""Who runs a broker on a data folder, across processes; whether it answers; why one could not start."""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from onceflow.connectors.kafka.embedded.jars import JarCache
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.runtime.environment.java import Java
from onceflow.runtime.errors import OnceflowError

_STOP_TIMEOUT_S = 30.0


class BrokerError(OnceflowError):
    """The embedded broker can't be started or reached: says why and what to do."""


class BrokerProcess(msgspec.Struct, frozen=True):
    """broker.json: the process that runs on a data folder. `started_at` tells a reused pid apart."""

    pid: int
    started_at: float
    version: str
    listeners: dict[str, int]

    def save(self, data_dir: Path) -> None:
        (data_dir / "broker.json").write_bytes(msgspec.json.encode(self))

    def process(self) -> psutil.Process | None:
        """The live process, or None if it has ended (a zombie has)."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started_at) < 2.0
            if is_same and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


def running_broker(data_dir: Path) -> BrokerProcess | None:
    """Who runs on this data folder now, started by whatever process; None if nobody does."""
    try:
        found = msgspec.json.decode((data_dir / "broker.json").read_bytes(), type=BrokerProcess)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return found if found.process() is not None else None


def end_process(process: psutil.Process) -> None:
    """End a broker cleanly (SIGTERM), even a frozen one; SIGKILL if it takes longer than 30 s."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(_STOP_TIMEOUT_S)


def stop_broker(data_dir: Path) -> BrokerProcess | None:
    """End whatever broker runs on the folder, started by any process. Returns which; None if none did."""
    running = running_broker(data_dir)
    process = running.process() if running else None
    if process is not None:
        end_process(process)
    (data_dir / "broker.json").unlink(missing_ok=True)
    return running


def require_unused(data_dir: Path, log_dir: Path) -> None:
    """BrokerError if a live broker runs on the folder; what a dead one left behind is removed.

    A Kafka that we did not start is known by its lock. Kafka itself asks for the lock only after its quorum
    has written to the files of whoever holds it, which then may end.
    """
    running = running_broker(data_dir)
    if running is not None:
        raise BrokerError(
            f"a broker already runs on {data_dir} (process {running.pid}, "
            f"port {running.listeners['PLAINTEXT']}): use it, or stop it with "
            f"'onceflow broker stop --data {data_dir}'"
        )
    if _is_locked(log_dir / ".lock"):
        raise BrokerError(
            f"another Kafka, not started by onceflow, holds the lock of the data folder {data_dir}: stop it"
        )
    (data_dir / "broker.json").unlink(missing_ok=True)


def _is_locked(path: Path) -> bool:
    """Whether another process holds it as Java's FileChannel.lock does, by a lock of POSIX."""
    try:
        with path.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # closing gives it back
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def require_space(data_dir: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(data_dir).free
    if free_bytes < needed_bytes:
        raise BrokerError(
            f"the disk of {data_dir} is full: {free_bytes // 2**20} MiB are free and the broker needs "
            f"{needed_bytes // 2**20} MiB: free some, or choose another folder"
        )


def log_reason(log: str) -> str:
    """The first line of Kafka's log that tells why it gave up, with what we know to say about it."""
    if "No space left on device" in log:
        return "the disk is full (No space left on device): free some, or choose another folder"
    exception = re.search(r"[\w.$]*(?:Exception|Error): .+", log)
    if exception is not None:
        return exception[0][:300]
    lines = [line.strip() for line in log.splitlines()]
    return ([line for line in lines if "ERROR" in line] or lines or ["it said nothing"])[0][:300]


def cluster_id_of(log_dir: Path) -> str:
    """What the folder was formatted with."""
    lines = (log_dir / "meta.properties").read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id="))


def answers(bootstrap_servers: str, cluster_id: str) -> bool:
    """Whether the broker serves: registered and unfenced, and every partition has its leader back.

    `cluster_id`: another's broker that took the port after it was found free is not ours.
    """
    try:
        metadata = quiet_admin(bootstrap_servers).list_topics(timeout=2)
    except KafkaException:
        return False
    leaders = [p.leader for topic in metadata.topics.values() for p in topic.partitions.values()]
    is_ours = metadata.cluster_id == cluster_id
    return is_ours and bool(metadata.brokers) and all(leader >= 0 for leader in leaders)


def leads_all(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Whether each partition's leader answers as such. A broker tells who leads a new partition before it
    has become the leader itself, and refuses the first records until then."""
    asked: dict[TopicPartition, OffsetSpec] = {
        TopicPartition(topic, number): OffsetSpec.for_timestamp(0) for number in range(partitions)
    }
    try:
        for answer in admin.list_offsets(asked, request_timeout=5).values():
            answer.result()
    except KafkaException:
        return False
    return True


def quiet_admin(bootstrap_servers: str) -> AdminClient:
    quiet: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None}
    return AdminClient(KafkaOptions(bootstrap_servers).admin(quiet))


def java_command(java: Java, class_path: str, folder: Path, heap_max: str = "1g") -> list[str]:
    """A JVM for Kafka, without its main class; it logs as `folder`/log4j2.properties says.

    C1 alone and the serial collector start faster and leave the cores to the job under test.
    """
    flags = ["-Xms128m", f"-Xmx{heap_max}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    flags += [f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"]
    return [str(java.executable), *flags, "-cp", class_path]


def class_archive(cache: JarCache, version: str, java: Java) -> Path:
    """Where the classes of this Kafka are, ready to map, once a broker has ended cleanly."""
    return cache.folder / f"classes-{version}-java-{java.version}.jsa"


def attempts(timeout_s: float) -> Iterator[None]:
    """Yields every 20 ms until the deadline."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        yield
        time.sleep(0.02)
