"""The process that forks Spark's Python workers, with what a slot imports already imported.

Spark starts one such daemon per executor (`spark.python.daemon.module`) and forks a worker from it for
each slot. A slot that replaces a killed one then starts in a fraction of the second or more that the
imports take. Spark's own part of a worker is among them, from the installed package: Spark's archive of
sources would be compiled by each daemon. Nothing here starts a thread: threads do not survive a fork.
"""

import importlib
import os

from onceflow.runtime.hosts.spark.installed_package import use_packages
from onceflow.runtime.hosts.spark.worker_environment import SAFE_PATH, check_environment, import_error

PRELOADED = (
    "confluent_kafka",
    "confluent_kafka.admin",
    "msgspec",
    "numpy",
    "polars",
    "polars_hash",
    "pyarrow",
    "pyarrow.compute",
    "pyspark.worker",
    "onceflow.connectors.kafka",
    "onceflow.runtime.api.job",
    "onceflow.runtime.hosts.spark.executor",
    "onceflow.sinks.kafka",
)

if __name__ == "__main__":
    check_environment(os.environ)
    os.environ.pop(SAFE_PATH, None)  # it was for this process, and not for what the user's functions start
    use_packages()
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise import_error(name, error) from None
    # Here and not above: it needs what may not be installed.
    from onceflow.runtime.kernels.preparation import prepare_kernels

    prepare_kernels()
    from pyspark.daemon import manager

    manager()
