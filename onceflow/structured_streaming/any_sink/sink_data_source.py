"""SinkDataSource: what Spark makes of `.format(...)` of a sink, once in the driver for each use."""

from __future__ import annotations

from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource

from onceflow.runtime.errors import UsageError
from onceflow.structured_streaming.any_sink.sink_format import SinkFormat


class SinkDataSource(DataSource):
    """See pyspark.sql.datasource.DataSource. Each format is a class with its own `form`: formats.py."""

    form: ClassVar[SinkFormat]

    @classmethod
    def name(cls) -> str:
        return cls.form.name

    def schema(self) -> Any:
        raise UsageError(f"{self.form.name} is a sink: {self.form.instead_of_reading}")

    def reader(self, schema: Any) -> Any:
        return self.schema()

    def streamReader(self, schema: Any) -> Any:
        return self.schema()

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from onceflow.structured_streaming.any_sink.writers import BatchWriter

        return BatchWriter(self.form, schema, self.options, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from onceflow.structured_streaming.any_sink.writers import stream_writer

        return stream_writer(self.form, schema, self.options)
