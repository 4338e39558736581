"""onceflow.register: makes our formats known to a Spark session."""

from __future__ import annotations

import os
from typing import Any

from onceflow.runtime.errors import UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.structured_streaming.python_path import startup_sent_along, this_python
from onceflow.structured_streaming.told_mistakes import tell_mistakes_in_a_sentence

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@explained
def register(spark: Any) -> None:
    """Make `.format("onceflow-kafka")`, `"onceflow-state"` and the formats of sinks and sources
    (`"onceflow-postgres"`, `"onceflow-kinesis"`; any_sink/formats.py and any_source/formats.py have all)
    known to this SparkSession; the user's program calls it once.

    Calling it again changes nothing. Executors need onceflow installed, in the same version. From then on
    an error of Spark's in which a format of onceflow's says what is wrong, and which nobody catches, ends
    the program with that sentence instead of its traceback (ONCEFLOW_DEBUG=1 shows it all). Raises
    UsageError if `spark` has no place for Python data sources.
    """
    from onceflow.structured_streaming.any_sink.formats import FORMATS as SINKS
    from onceflow.structured_streaming.any_source.formats import FORMATS as SOURCES
    from onceflow.structured_streaming.data_source import OnceflowKafka
    from onceflow.structured_streaming.state_format import OnceflowState

    formats = (OnceflowKafka, OnceflowState, *SINKS, *SOURCES)
    tell_mistakes_in_a_sentence()
    registration = getattr(spark, "dataSource", None)
    if registration is None:
        raise UsageError(
            f"onceflow.register needs a SparkSession of PySpark 4, but got a {type(spark).__name__}"
        )
    spark.conf.set(PUSHDOWN, "true")  # Spark 4.1: filters on the key of a state, else all of it is read
    environment = getattr(getattr(spark, "sparkContext", None), "environment", None)
    if environment is None:  # Spark Connect: the server starts the processes, in an environment of its own
        for each in formats:
            registration.register(each)
        return
    with startup_sent_along(environment), this_python(spark.sparkContext, os.environ):
        for each in formats:
            registration.register(each)
