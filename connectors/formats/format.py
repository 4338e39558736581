"""Format: how the bytes of a key or a value become columns, and columns bytes.

A format is a description: immutable, picklable, opens nothing. A reader makes a Decoder of it, a sink
writer an Encoder; each is used by one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from onceflow.runtime.arrays.recycled_memory import Memory
from onceflow.runtime.errors import Fatal
from onceflow.runtime.records import Indices, Int64s, Kinds


class EncodeError(Fatal):
    """A row can't be written in the format: names column and row. A restart would meet it again."""


class NotFlatError(Exception):
    """Raised when a compiled loop is made for columns, or records, of a kind that it does not know."""


Values: TypeAlias = Sequence[bytes | None] | pa.Array
"""Encoded values as a reader has them: bytes objects, or an Arrow array of type binary or large_binary."""


ON_NULL_ADVICE = ": say on_null= if it may be"
NO_VALUE = f"there is no value (a tombstone){ON_NULL_ADVICE}"
"""Why a value that is not there is bad; the end of it is for those who write `Json(..., on_null=...)`."""


class BadValue(NamedTuple):
    """A value that can't be decoded: its position among the values, and why."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of a sequence of values. Each is a row of `batch`, or in `bad`, or was left out
    because the format was told to (`Json(on_null="skip")`); never two of these, never none."""

    batch: pa.RecordBatch
    """The good values in their order; always as many rows as `rows`."""
    rows: Int64s | None
    """Positions, among the values, of the batch's rows; None: every value, in order."""
    bad: Sequence[BadValue] = ()
    kinds: Kinds | None = None
    """What each row of the batch does, a RowKind; None: all are inserts. Only a ChangelogFormat has others.
    There a value may be two rows, what was before and what is now, and `rows` has its position twice."""


def rows_without_columns(count: int) -> pa.RecordBatch:
    """What a decoder of no columns makes: a batch that only knows how many rows it has."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def as_list(values: Values) -> Sequence[bytes | None]:
    """The values as a sequence, for decoders that take one value at a time."""
    if isinstance(values, pa.Array):
        array: Any = values
        listed: list[bytes | None] = array.to_pylist()
        return listed
    return values


def as_binary(values: Values) -> pa.Array:
    """The values as binary or large_binary, as they came, for decoders that take all at once."""
    return values if isinstance(values, pa.Array) else pa.array(values, pa.binary())


def taken(values: Values, rows: Indices) -> Values:
    """Some of the values; `rows`: ascending."""
    if isinstance(values, pa.Array):
        array: Any = values
        return array.take(pa.array(rows))
    return [values[row] for row in rows.tolist()]


def value_at(values: Values, row: int) -> bytes | None:
    entry: Any = values[row]
    found: bytes | None = entry.as_py() if isinstance(values, pa.Array) else entry
    return found


class Decoder(Protocol):
    """Decodes for one reader."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the batches it makes."""
        ...

    def decode(self, values: Values) -> Decoded:
        """Values to rows; None (or null) is a value that is not there (Kafka: a tombstone, or no key).

        Never raises for what a value holds: that is a BadValue.
        """
        ...


class Encoder(Protocol):
    """Encodes for one writer."""

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """One entry of type binary or large_binary for each row; null: no value (a tombstone).

        Raises EncodeError naming row and column if a row can't be written in this format.
        """
        ...


@runtime_checkable
class PlacingEncoder(Encoder, Protocol):
    """An Encoder that spares its caller to move what it has written."""

    def encode_in_order(self, batch: pa.RecordBatch, order: Indices | None, memory: Memory) -> pa.Array:
        """Encode rows in this order: the i-th entry is that of row order[i] (None: of the i-th); no row is
        asked for twice. The bytes are claimed from `memory`, if that is as quick."""
        ...


class Format(Protocol):
    """The description of a format."""

    @property
    def schema(self) -> pa.Schema | None:
        """Columns that decoding gives; None if the format was made for encoding only."""
        ...

    @property
    def record_type(self) -> type | None:
        """The user's dataclass or NamedTuple, if there is one."""
        ...

    def decoder(self, columns: frozenset[str] | None = None) -> Decoder:
        """A decoder of these columns, in the schema's order (None: all).

        A value is checked as far as these columns need it: it must be well formed, and these columns'
        fields must have their types; what else it holds is not looked at. Raises OptionError if the
        format has no schema.
        """
        ...

    def encoder(self, schema: pa.Schema) -> Encoder:
        """An encoder of batches with this schema. Raises GraphError naming a column that can't be
        written. Called when the graph is built, to check, and for each writer."""
        ...


@runtime_checkable
class ChangelogFormat(Protocol):
    """A format whose values may update and delete rows: see `Decoded.kinds`."""

    @property
    def has_kinds(self) -> bool:
        """Whether decoded rows may be anything but inserts."""
        ...

    @property
    def lacks_before(self) -> bool:
        """See PartialChangelogSource."""
        ...


def has_kinds(format: object) -> bool:
    """Whether decoded rows may be anything but inserts."""
    return isinstance(format, ChangelogFormat) and format.has_kinds


def lacks_before(format: object) -> bool:
    """Whether updates may come without the row as it was."""
    return isinstance(format, ChangelogFormat) and format.lacks_before


@runtime_checkable
class TopicFormat(Protocol):
    """A format for which it matters what topic is written."""

    def for_topic(self, topic: str, part: Literal["key", "value"]) -> Format:
        """The same format for keys or values of this topic."""
        ...


def for_topic(format: Format, topic: str, part: Literal["key", "value"]) -> Format:
    """A sink calls this before it asks for an encoder."""
    return format.for_topic(topic, part) if isinstance(format, TopicFormat) else format
