"""What a master's name and the settings say of how many slots there can ever be."""

from __future__ import annotations

import pytest

from onceflow.runtime.errors import OptionError
from onceflow.runtime.hosts.spark.slot_limit import can_grow, check_fits, check_master, slot_limit


@pytest.mark.parametrize(
    ("master", "settings", "limit"),
    [
        ("local", {}, 1),
        ("local[3]", {}, 3),
        ("local[ 3 , 2 ]", {}, 3),
        ("local[*]", {}, None),
        ("local[5]", {"spark.task.cpus": "2"}, 2),
        ("local-cluster[2,1,1024]", {}, 2),
        ("local-cluster[2, 3, 1024]", {"spark.task.cpus": "2"}, 2),
        ("spark://127.0.0.1:7077", {}, None),
        ("spark://127.0.0.1:7077", {"spark.cores.max": "5", "spark.task.cpus": "2"}, 2),
        ("yarn", {}, None),
    ],
)
def test_slots_that_a_master_can_have(master: str, settings: dict[str, str], limit: int | None) -> None:
    assert slot_limit(master, settings) == limit


@pytest.mark.parametrize(
    ("limit", "master", "said"),
    [
        (2, "local[2]", r"parallelism=8 .* at once, local\[2\] has 2: use --master 'local\[8\]'"),
        (2, "local-cluster[2,1,1024]", "local-cluster.* has 2: use a larger master"),
    ],
)
def test_what_can_never_fit_is_refused(limit: int, master: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_fits(8, limit, master)


def test_what_may_fit_is_not_refused() -> None:
    check_fits(8, None, "spark://127.0.0.1:7077")
    check_fits(8, 8, "local[8]")


@pytest.mark.parametrize("cpus", ["0", "-1", "two"])
def test_a_setting_that_is_no_number_of_cores_is_named(cpus: str) -> None:
    with pytest.raises(OptionError, match=rf"spark\.task\.cpus={cpus}"):
        slot_limit("local[2]", {"spark.task.cpus": cpus})


@pytest.mark.parametrize(
    ("master", "grows"),
    [("local[2]", False), ("local[*]", False), ("local-cluster[2,1,1024]", True), ("spark://h:1", True)],
)
def test_executors_come_late_but_on_a_local_master(master: str, grows: bool) -> None:
    assert can_grow(master) is grows


@pytest.mark.parametrize("master", ["foo", "thread[2]", "local[two]", "localhost:7077", ""])
def test_a_master_that_spark_does_not_know_is_refused_before_spark_starts(master: str) -> None:
    with pytest.raises(OptionError, match=r"write threads\[N\] for slots without Spark, local\[N\]"):
        check_master(master, {"HADOOP_CONF_DIR": "/etc/hadoop"})


@pytest.mark.parametrize(
    ("master", "meant"),
    [
        ("thread[2]", "threads[2]"),
        ("Local[4]", "local[4]"),
        ("jarn", "yarn"),
        ("spark:h:7077", "spark://h:7077"),
        ("local[2", "local[2]"),
        ("threads[]", "threads"),
    ],
)
def test_the_master_that_was_meant_is_named(master: str, meant: str) -> None:
    with pytest.raises(OptionError) as refused:
        check_master(master, {"HADOOP_CONF_DIR": "/etc/hadoop"})
    assert f"there is no master {master!r} (did you mean {meant!r}?)" in str(refused.value)


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[2]", "local[2,3]", "local-cluster[2,1,1024]", "spark://h:1,g:1", "yarn"],
)
def test_a_master_that_spark_knows_is_taken(master: str) -> None:
    check_master(master, {"HADOOP_CONF_DIR": "/etc/hadoop"})
    check_master("k8s://https://h:6443", {})


@pytest.mark.parametrize("environment", [{}, {"YARN_CONF_DIR": ""}])
def test_yarn_without_the_clusters_settings_is_refused_before_spark_starts(
    environment: dict[str, str],
) -> None:
    with pytest.raises(OptionError, match=r"--master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR"):
        check_master("yarn", environment)
    check_master("yarn", {"YARN_CONF_DIR": "/etc/hadoop"})
