"""SinkDataSource: what Spark makes of `.format(...)` of a sink, once in the driver for each use."""

from __future__ import annotations

from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource

from onceflow.runtime.errors import UsageError
from onceflow.structured_streaming.any_sink.sink_format import SinkFormat
from onceflow.structured_streaming.any_source.source_format import SourceFormat


class SinkDataSource(DataSource):
    """See pyspark.sql.datasource.DataSource. Each format is a class with its own `form`: formats.py."""

    form: ClassVar[SinkFormat]
    reading: ClassVar[SourceFormat | None] = None
    """How it is read as a stream; None: it is not."""

    @classmethod
    def name(cls) -> str:
        return cls.form.name

    def schema(self) -> Any:
        if self.reading is None:
            return self._refuse()
        from onceflow.structured_streaming.any_source.source_format import schema_of

        return schema_of(self.reading, self.options)

    def reader(self, schema: Any) -> Any:
        return self._refuse()

    def streamReader(self, schema: Any) -> Any:
        if self.reading is None:
            return self._refuse()
        from onceflow.structured_streaming.any_source.stream_reader import stream_reader

        return stream_reader(self.reading, schema, self.options)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from onceflow.structured_streaming.any_sink.writers import BatchWriter

        return BatchWriter(self.form, schema, self.options, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from onceflow.structured_streaming.any_sink.writers import stream_writer

        return stream_writer(self.form, schema, self.options)

    def _refuse(self) -> Any:
        what = "is a sink" if self.reading is None else "is a sink, and read as a stream"
        raise UsageError(f"{self.form.name} {what}: {self.form.instead_of_reading}")
