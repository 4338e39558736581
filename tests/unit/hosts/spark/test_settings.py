"""Spark's settings of a job: whose value counts, and which Python slots get."""

from __future__ import annotations

import os
import sys

import pytest

from onceflow.runtime.errors import OptionError
from onceflow.runtime.hosts.spark.settings import choose_python, job_settings
from onceflow.runtime.hosts.spark.worker_environment import EXPECTED, expected


def test_a_users_value_goes_before_a_default_and_only_a_local_master_stays_on_loopback() -> None:
    users = {"spark.driver.memory": "4g", "spark.ui.showConsoleProgress": "true"}
    local, cluster = job_settings(users, is_local=True), job_settings(users, is_local=False)
    assert users.items() <= local.items()
    assert users.items() <= cluster.items()
    assert local["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in cluster
    assert cluster[f"spark.executorEnv.{EXPECTED}"] == expected()
    assert cluster["spark.executorEnv.PYTHONSAFEPATH"] == local["spark.executorEnv.PYTHONSAFEPATH"] == "1"


def test_what_restarts_rest_on_is_refused_and_may_be_given_as_it_has_to_be() -> None:
    with pytest.raises(OptionError, match=r"--conf spark.task.maxFailures=4 can't be set: .* needs 1"):
        job_settings({"spark.task.maxFailures": "4"}, is_local=True)
    assert job_settings({"spark.task.maxFailures": "1"}, is_local=True)["spark.task.maxFailures"] == "1"


def test_the_python_of_slots_is_sparks_setting_then_the_variable_then_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    os.environ.pop("PYSPARK_PYTHON")
    choose_python({})
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    os.environ["PYSPARK_PYTHON"] = "./environment/bin/python"
    choose_python({})
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"
    choose_python({"spark.pyspark.python": "/opt/python"})
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
