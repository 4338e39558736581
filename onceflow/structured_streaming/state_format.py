"""OnceflowState: what Spark makes of `.format("onceflow-state")`; the state of a job as tables.

What is loaded is loaded where it is used, since Spark makes a new Python process for each step.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql.datasource import DataSource

NAME = "onceflow-state"


class OnceflowState(DataSource):
    """See pyspark.sql.datasource.DataSource. Holds the options, as the user wrote them, and nothing else."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> Any:
        from onceflow.structured_streaming.state_source import state_schema

        return state_schema(self.options)

    def reader(self, schema: Any) -> Any:
        from onceflow.structured_streaming.state_changes import ChangesReader
        from onceflow.structured_streaming.state_source import reader_class

        if any(name.lower() == "changes_from" for name in self.options):
            return ChangesReader(schema, self.options)
        return reader_class(sys.modules)(schema, self.options)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from onceflow.structured_streaming.state_sink import StateWriter

        return StateWriter(schema, self.options)
