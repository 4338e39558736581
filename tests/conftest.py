"""Fixtures for all tests: real brokers, fresh topics, a Spark session, and a guard over import names."""

from __future__ import annotations

import gc
import os
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import onceflow
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.embedded.jars import MAVEN_CENTRAL, PINNED_VERSION, JarCache
from onceflow.runtime.environment.java import JavaError, find_java
from onceflow.runtime.hosts.spark.class_archive import as_setting, local_java_options
from onceflow.runtime.hosts.spark.unused_file_systems import let_go_of_unused_file_systems
from tests import server_container, workers
from tests.shared_broker import SharedBroker, shared_broker

# What takes long on a machine that does other things too is no finding.
hypothesis.settings.register_profile(
    "onceflow", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("onceflow")

# While the tests are imported nothing becomes garbage: looking for it took a sixth of the time.
gc.disable()

# For the JVMs of all Sparks here: none lives long enough for what optimising its code would give back.
with suppress(JavaError):  # then the tests that need one say so
    os.environ.setdefault("SPARK_SUBMIT_OPTS", as_setting(local_java_options(find_java())))
# NumPy's threads for linear algebra, which each process starts and nothing here uses, spin for a while.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

LONG_FILES = (
    "integration/test_structured_streaming_any_source.py",
    "integration/test_structured_streaming_sink_kills.py",
    "integration/test_structured_streaming_any_sink_kills.py",
    "simulation/test_simulation.py",
    "integration/test_spark_windowed_totals.py",
    "integration/test_spark_cluster.py",
    "properties/test_regular_join.py",
    "properties/test_spans.py",
    "test_site.py",
    "integration/test_three_brokers.py",
    "integration/test_operating.py",
    "integration/test_tutorial.py",
    "integration/test_verdicts.py",
    "integration/test_dead_broker.py",
    "integration/test_deployment.py",
    "integration/test_users_program.py",
    "integration/test_structured_streaming_sink.py",
    "integration/test_kills.py",
    "integration/test_spark_start.py",
    "integration/test_failures.py",
    "integration/test_rescale.py",
    "integration/test_table_kills.py",
    "integration/test_file_sink_kills.py",
    "integration/test_spark_connect.py",
    "integration/kafka_source/test_truncation.py",
    "integration/test_corruption.py",
    "integration/test_kafka_sink_traps.py",
    "integration/test_kafka_sink_crashes.py",
    "integration/",
    "simulation/",
    "properties/",
)
"""Files, then folders, that take longest; in this order. What is not named takes seconds."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Workers that import all tests for the first time share the work: see `import_share`."""
    given = getattr(session.config, "workerinput", None)
    if given is not None and session.config.args == session.config.getini("testpaths"):
        workers.import_share(Path(__file__).parent, int(given["workerid"][2:]), given["workercount"])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files are begun first: one that began last would leave the other workers with nothing to
    do. A file stays on one worker (--dist loadfile); within a file the order is pytest-randomly's."""

    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(Path(__file__).parent).as_posix()
        return next((n for n, start in enumerate(LONG_FILES) if name.startswith(start)), len(LONG_FILES))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """The tests and all that they import live to the end: no collection of garbage looks at them again. Each
    slot of a job on threads begins with one."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def frozen_before_each_module() -> None:
    """What earlier modules have left is frozen, too: late in a run a collection of it takes a second."""
    gc.collect()
    gc.freeze()


KILL = "kill"
"""The property of a test for each process that it killed and whose output it judged: `WHOM | STEP`."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What shared brokers and other servers ran as; how often who was killed in which step, over all tests
    that tell it."""
    for runs_as, times in terminalreporter.config.stash[BROKERS].items():
        terminalreporter.write_line(f"the shared Kafka of {times} processes of tests ran {runs_as}")
    for ran, times in sorted(server_container.RAN.items()):
        terminalreporter.write_line(f"{ran} ({times} of them)" if times > 1 else ran)
    kills = Counter(
        tuple(str(value).split(" | "))
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == KILL
    )
    if not kills:
        return
    kinds = sorted({whom for whom, _ in kills})
    terminalreporter.section(
        f"{kills.total()} kills, judged: 0 missing, 0 doubled, 0 wrong unless a test failed"
    )
    terminalreporter.write_line(f"{'step':28}" + "".join(f"{kind:>9}" for kind in kinds))
    for step in dict.fromkeys(step for _, step in kills):
        counts = "".join(f"{kills[kind, step]:>9}" for kind in kinds)
        terminalreporter.write_line(f"{step:28}{counts}")


StartBroker = Callable[..., EmbeddedKafka]
MakeTopic = Callable[..., str]


@pytest.fixture(scope="session", autouse=True)
def one_name_for_each_module() -> Iterator[None]:
    """A module imported as `runtime.x` beside `onceflow.runtime.x` would make two of each class."""
    yield
    bare = [name for name in sys.modules if name.split(".")[0] in {"connectors", "runtime", "sinks"}]
    assert not bare, f"imported without the onceflow prefix: {bare[:5]}"


@pytest.fixture(scope="session")
def kafka_version() -> str:
    """The Kafka under test: the pinned one, or ONCEFLOW_KAFKA_VERSION."""
    return os.environ.get("ONCEFLOW_KAFKA_VERSION", PINNED_VERSION)


@pytest.fixture(scope="session")
def jar_cache() -> JarCache:
    return JarCache(maven_mirror=os.environ.get("ONCEFLOW_MAVEN_MIRROR", MAVEN_CENTRAL))


@pytest.fixture(scope="session")
def broker(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kafka_version: str,
    jar_cache: JarCache,
) -> Iterator[SharedBroker]:
    """One broker for all tests that leave it alive: use fresh topics (`new_topic`) and ids.

    ONCEFLOW_TEST_BROKER: `process`, `container`, or `auto`, the default; ONCEFLOW_KAFKA_IMAGE: of what.
    """
    kind = os.environ.get("ONCEFLOW_TEST_BROKER", "auto")
    image = os.environ.get("ONCEFLOW_KAFKA_IMAGE", f"apache/kafka:{kafka_version}")
    folder = tmp_path_factory.mktemp("shared-broker")
    with shared_broker(kind, image, kafka_version, jar_cache, folder) as shared:
        request.config.stash[BROKERS][shared.runs_as] += 1
        yield shared


BROKERS = pytest.StashKey[Counter[str]]()
"""What shared brokers ran as: of this process, and in the end of all workers of xdist."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BROKERS] = Counter()
    config.pluginmanager.register(workers)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    output = getattr(node, "workeroutput", {})
    node.config.stash[BROKERS].update(output.get("brokers", {}))
    server_container.RAN.update(output.get("servers", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # a worker of xdist
        output["brokers"] = dict(session.config.stash[BROKERS])
        output["servers"] = dict(server_container.RAN)


@pytest.fixture
def new_topic(broker: SharedBroker) -> MakeTopic:
    """`new_topic("input", partitions=2)` makes a topic with a unique name on the shared broker."""

    def make(prefix: str = "topic", partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        return broker.create_topic(f"{prefix}-{uuid.uuid4().hex[:12]}", partitions, config)

    return make


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One session for all tests of a process that know `onceflow-kafka` in it; starting a JVM takes long."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.python.daemon.module": "onceflow.structured_streaming.daemon",
        "spark.log.level": "OFF",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    let_go_of_unused_file_systems()
    session = builder.getOrCreate()
    server_container.RAN.update([f"spark: PySpark {session.version}"])
    onceflow.register(session)
    yield session
    session.stop()


def _brokers(
    folders: pytest.TempPathFactory, kafka_version: str, jar_cache: JarCache
) -> Iterator[StartBroker]:
    with ExitStack() as stack:

        def start(data_dir: Path | None = None, **settings: object) -> EmbeddedKafka:
            folder = data_dir or folders.mktemp("own-broker")
            kafka = EmbeddedKafka(
                folder,
                **{"version": kafka_version, "jar_cache": jar_cache, **settings},  # type: ignore[arg-type]
            )
            return stack.enter_context(kafka)

        yield start


@pytest.fixture
def own_broker(
    tmp_path_factory: pytest.TempPathFactory, kafka_version: str, jar_cache: JarCache
) -> Iterator[StartBroker]:
    """`own_broker(properties={...}, extra_listeners={...})` starts one for this test to kill or freeze."""
    yield from _brokers(tmp_path_factory, kafka_version, jar_cache)


@pytest.fixture(scope="module")
def module_broker(
    tmp_path_factory: pytest.TempPathFactory, kafka_version: str, jar_cache: JarCache
) -> Iterator[StartBroker]:
    """The same, for a module's own fixture to start one that the module's tests kill."""
    yield from _brokers(tmp_path_factory, kafka_version, jar_cache)
