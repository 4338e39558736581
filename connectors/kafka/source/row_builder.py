"""RowBuilder: what was fetched from Kafka to rows and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from onceflow.connectors.bad_records import Tolerance, bad_record_error
from onceflow.connectors.formats import BadValue, Decoded, Decoder
from onceflow.connectors.formats.format import value_at
from onceflow.connectors.kafka.fetched import HEADERS_TYPE, NO_TIME, Fetched, Wanted
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.connectors.kafka.split import KafkaSplit
from onceflow.runtime.contracts import DEAD_LETTER_SCHEMA
from onceflow.runtime.errors import BadRecordError
from onceflow.runtime.records import Indices, Kinds, Mask

Metadata = Literal["headers", "timestamp", "timestamp_kind", "topic", "partition", "offset"]
"""What Kafka knows of a record beside key and value."""

METADATA: dict[Metadata, tuple[pa.DataType, bool]] = {
    "headers": (HEADERS_TYPE, False),
    "timestamp": (pa.timestamp("ms", "UTC"), True),
    "timestamp_kind": (pa.int8(), False),
    "topic": (pa.string(), False),
    "partition": (pa.int32(), False),
    "offset": (pa.int64(), False),
}
"""The type of each kind's column, and whether it may be null."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What became of records: each is a row of `batch` or of `dead_letters` (or was told to be left out).

    `kept`: which records became rows, in order; None: all. In a changelog it is the record of each row, since
    one may be two rows, and `kinds` says what each row does.
    """

    batch: pa.RecordBatch
    kept: Mask | Indices | None
    dead_letters: pa.RecordBatch | None = None
    kinds: Kinds | None = None


class RowBuilder:
    """Decodes keys and values and adds the columns of Kafka's own metadata."""

    def __init__(
        self,
        schema: pa.Schema,
        key: Decoder | None,
        value: Decoder,
        metadata: Sequence[Metadata],
        tolerance: Tolerance,
    ) -> None:
        """`schema`: the columns of key, value and metadata, in this order."""
        self._schema = schema
        self._key = key
        self._value = value
        self._metadata = metadata
        self._tolerance = tolerance

    @property
    def wanted(self) -> Wanted:
        """What has to be fetched for these rows."""
        return Wanted(
            key=self._key is not None,
            timestamp="timestamp" in self._metadata or "timestamp_kind" in self._metadata,
            headers="headers" in self._metadata,
            details=self._tolerance == "all",
        )

    def build(self, fetched: Fetched, splits: SplitTable) -> Rows:
        """Raises BadRecordError for the first record that can't be decoded, if none is tolerated."""
        decoded: dict[str, Decoded] = {}
        if self._key is not None:
            assert fetched.key is not None, "wanted"
            decoded["key"] = self._key.decode(fetched.key)
        decoded["value"] = self._value.decode(fetched.value)
        kept: Mask | Indices | None
        kinds = decoded["value"].kinds
        if kinds is None:
            mask, parts = _common_rows(list(decoded.values()), len(fetched))
            kept, good = mask, fetched if mask is None else fetched.filter(mask)
        else:
            records, parts, kinds = _changes(decoded.get("key"), decoded["value"], len(fetched))
            kept, good = records, fetched.take(records)
        dead_letters = None
        if any(part.bad for part in decoded.values()):
            dead_letters = self._dead_letters(fetched, splits, decoded)
        columns = [column for part in parts for column in part.columns]
        columns += [_metadata_column(name, good, splits) for name in self._metadata]
        if not columns:  # nobody reads a column: only how many rows there are
            return Rows(parts[0], kept, dead_letters, kinds)
        return Rows(pa.RecordBatch.from_arrays(columns, schema=self._schema), kept, dead_letters, kinds)

    def _dead_letters(
        self, fetched: Fetched, splits: SplitTable, decoded: dict[str, Decoded]
    ) -> pa.RecordBatch:
        """A dead letter for each bad record, in order; with the key's reason if both are bad."""
        first: dict[int, tuple[str, BadValue]] = {}
        for stage, part in decoded.items():
            for bad in part.bad:
                first.setdefault(bad.row, (stage, bad))
        if self._tolerance == "none":
            row = min(first)
            raise _error(fetched, row, splits.splits[fetched.row_split[row]], *first[row])
        return pa.RecordBatch.from_pylist(
            [
                _dead_letter(fetched, row, splits.splits[fetched.row_split[row]], *first[row])
                for row in sorted(first)
            ],
            schema=DEAD_LETTER_SCHEMA,
        )


def _metadata_column(name: Metadata, fetched: Fetched, splits: SplitTable) -> pa.Array:
    arrow, _ = METADATA[name]
    match name:
        case "headers":
            assert fetched.headers is not None, "wanted"
            return fetched.headers
        case "timestamp":
            assert fetched.timestamp_ms is not None, "wanted"
            assert fetched.time_kind is not None, "there with the timestamp"
            return pa.array(fetched.timestamp_ms, pa.int64(), mask=fetched.time_kind == NO_TIME).cast(arrow)
        case "timestamp_kind":
            return pa.array(fetched.time_kind, arrow)
        case "topic":
            topics = pa.array([split.topic for split in splits.splits], arrow)
            return topics.take(pa.array(fetched.row_split))
        case "partition":
            partitions = np.array([split.partition for split in splits.splits], np.int32)
            return pa.array(partitions[fetched.row_split], arrow)
        case "offset":
            return pa.array(fetched.offset, arrow)


def _common_rows(decoded: Sequence[Decoded], count: int) -> tuple[Mask | None, list[pa.RecordBatch]]:
    """The records of which every part could be decoded, and each part cut down to them."""
    if all(part.rows is None for part in decoded):
        return None, [part.batch for part in decoded]
    kept = np.ones(count, np.bool_)
    for part in decoded:
        if part.rows is not None:
            good = np.zeros(count, np.bool_)
            good[part.rows] = True
            kept &= good
    masks = [kept if part.rows is None else kept[part.rows] for part in decoded]
    return kept, [part.batch.filter(pa.array(mask)) for part, mask in zip(decoded, masks, strict=True)]


def _changes(key: Decoded | None, value: Decoded, count: int) -> tuple[Indices, list[pa.RecordBatch], Kinds]:
    """The record of each row of a changelog, the columns of key and value, and what each row does. A record
    whose key is bad has no row."""
    assert value.kinds is not None, "a changelog"
    records = np.arange(count) if value.rows is None else value.rows
    if key is None:
        return records, [value.batch], value.kinds
    if key.rows is None:
        return records, [key.batch.take(pa.array(records)), value.batch], value.kinds
    place = np.full(count, -1, np.int64)
    place[key.rows] = np.arange(len(key.rows))
    is_good = place[records] >= 0
    records = records[is_good]
    keys = key.batch.take(pa.array(place[records]))
    return records, [keys, value.batch.filter(pa.array(is_good))], value.kinds[is_good]


def _dead_letter(fetched: Fetched, row: int, split: KafkaSplit, stage: str, bad: BadValue) -> dict[str, Any]:
    assert fetched.details is not None, "wanted"
    details = fetched.details(row)
    return {
        "topic": split.topic,
        "partition": split.partition,
        "offset": int(fetched.offset[row]),
        "timestamp": details.timestamp_ms,
        "key": details.key,
        "value": value_at(fetched.value, row),
        "headers": details.headers,
        "reason": bad.reason,
        "stage": stage,
    }


def _error(fetched: Fetched, row: int, split: KafkaSplit, stage: str, bad: BadValue) -> BadRecordError:
    values = fetched.key if stage == "key" else fetched.value
    value = None if values is None else value_at(values, row)
    what = f"the {stage} of the record in {split.split_id} at offset {int(fetched.offset[row])}"
    return bad_record_error(what, bad.reason, value)
