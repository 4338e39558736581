"""Spark's settings as a job needs them: what is ours, what is only a default, and which Python slots get."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from onceflow.runtime.errors import OptionError
from onceflow.runtime.hosts.spark.worker_environment import EXPECTED, SAFE_PATH, expected

OWN_SETTINGS: Mapping[str, str] = {
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.task.maxFailures": "1",
    # Room for the slots is asked for here, before a stage is submitted; Spark's own look comes to an end.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "1",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.dynamicAllocation.enabled": "false",
}
"""Settings that restarts and exactness rest on; a user's own value for one of them is refused."""

DEFAULT_SETTINGS: Mapping[str, str] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "onceflow.runtime.hosts.spark.daemon",
    f"spark.executorEnv.{EXPECTED}": expected(),
    # Spark starts the daemon by `python -m`, which looks for modules of Python's own in the folder that the
    # command runs in: a `types.py` there would be taken for Python's. What the program imports is shipped.
    f"spark.executorEnv.{SAFE_PATH}": "1",
}
"""A user's value goes first."""

LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""More settings for local masters; a user's value goes first."""


def job_settings(users: Mapping[str, str], is_local: bool) -> dict[str, str]:
    """All settings of a job. Raises OptionError for a value of the user's for one that is ours."""
    for name, value in users.items():
        if OWN_SETTINGS.get(name, value) != value:
            raise OptionError(
                f"--conf {name}={value} can't be set: onceflow restarts attempts itself and needs "
                f"{OWN_SETTINGS[name]}"
            )
    return {**DEFAULT_SETTINGS, **(LOCAL_SETTINGS if is_local else {}), **users, **OWN_SETTINGS}


def choose_python(settings: Mapping[str, str]) -> None:
    """Set the Python of slots where PySpark looks for it: what `spark.pyspark.python` says, as with
    spark-submit; else what PYSPARK_PYTHON says already; else this process's own."""
    if "spark.pyspark.python" in settings:
        os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
