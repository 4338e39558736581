"""MessageSource: what the declarations of all sources of messages have in common."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa

from onceflow.connectors.bad_records import TolerantSource
from onceflow.connectors.extras import needs_extra
from onceflow.connectors.formats.format import has_kinds, lacks_before
from onceflow.connectors.message_fields import check_distinct, check_value, message_schema
from onceflow.connectors.message_rows import MessageRows
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError

if TYPE_CHECKING:
    from onceflow.connectors.formats import Format


class MessageSource(TolerantSource):
    """The parts of a Source that follow from the format of its messages and from the columns beside it: its
    schema, and the abilities ChangelogSource, PartialChangelogSource, ProjectableSource and DeadLetterSource.

    A subclass is a frozen dataclass. It has the fields below and those of TolerantSource, and says in
    `beside` which columns the user has named.
    """

    value: Format
    """What the body of a message is."""
    columns: frozenset[str] | None
    """The columns that the job reads; None: all."""

    def beside(self) -> Mapping[str, pa.Field]:
        """The columns that the user has named, by what is known of a message beside its body."""
        raise NotImplementedError

    @property
    def schema(self) -> pa.Schema:
        return message_schema(self.value, self.beside().values(), self.columns)

    @property
    def record_type(self) -> type | None:
        return self.value.record_type

    @property
    def has_kinds(self) -> bool:
        """See ChangelogSource."""
        return has_kinds(self.value)

    @property
    def lacks_before(self) -> bool:
        """See PartialChangelogSource."""
        return lacks_before(self.value)

    def project(self, columns: frozenset[str]) -> Self:
        """See ProjectableSource."""
        return cast(Self, replace(cast(Any, self), columns=columns))

    # --- For subclasses ---

    def rows(self) -> MessageRows:
        """How bodies become rows, of the columns that are read."""
        return MessageRows(self.schema, self.value.decoder(self.columns), self.tolerates_bad)

    def read_beside(self) -> list[str]:
        """What is known of a message beside its body and is read, in the order of its columns."""
        names = self.schema.names
        return [what for what, field in self.beside().items() if field.name in names]

    def check_message_source(self, extra: str, package: str, durations: Sequence[str]) -> None:
        """Raises UsageError if the `package` of this `extra` is not there, OptionError if the format, one of
        the options that are durations, or the names of columns are wrong."""
        with needs_extra(type(self).__name__, extra):
            importlib.import_module(package)
        check_value(self.value)
        self.settle_tolerance()
        for name in durations:
            duration_ms(getattr(self, name), name)
        check_distinct(self.schema.names)

    def check_names(self, option: str, noun: str, is_optional: bool = False) -> None:
        """Raises OptionError if an option is no list of names, each once."""
        names = list(getattr(self, option))
        are_names = all(isinstance(each, str) and each for each in names)
        if not (names or is_optional) or not are_names or len(set(names)) < len(names):
            raise OptionError(
                f"{type(self).__name__}: {option}={names!r}: give the names of {noun}, each once"
            )
