"""What every Format must do: rows to bytes and back, whatever the bytes hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import SkipTest

import pyarrow as pa

from onceflow.connectors.formats.format import Decoded, Decoder, Encoder, Format
from onceflow.runtime.contracts import Json
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.played_engine import Elsewhere

CUTS = 40
"""How many places of a value it is cut and damaged at."""


@dataclass
class PlayedFormat:
    """A format, three rows or more that it writes and reads back as they are, and values that are bad."""

    format: Format
    rows: pa.RecordBatch
    bad: Sequence[bytes]
    elsewhere: Elsewhere | None = None

    def encoded(self) -> list[bytes]:
        """The rows as bytes."""
        values: list[bytes] = self.format.encoder(self.rows.schema).encode(self.rows).to_pylist()
        return values


def same(found: pa.RecordBatch, expected: pa.RecordBatch, why: str) -> None:
    one, other = found.to_pylist(), expected.to_pylist()
    assert repr(one) == repr(other), f"{why}: expected {other}, and there is {one}"


def places(decoded: Decoded, count: int) -> list[int]:
    """The positions of the good rows."""
    return list(range(count)) if decoded.rows is None else decoded.rows.tolist()


@quotations.of(Encoder.encode, "One entry of type binary or large_binary for each row")
def each_row_is_written_as_one_value(case: PlayedFormat) -> None:
    written = case.format.encoder(case.rows.schema).encode(case.rows)
    assert len(written) == case.rows.num_rows, f"{case.rows.num_rows} rows were {len(written)} values"
    assert written.type in (pa.binary(), pa.large_binary()), f"values are of type {written.type}"


@quotations.of(Decoder.decode, "Values to rows")
def what_is_written_is_read_back(case: PlayedFormat) -> None:
    decoded = case.format.decoder().decode(case.encoded())
    assert not decoded.bad, f"what it has written itself is bad: {decoded.bad[0].reason}"
    same(decoded.batch, case.rows.select(decoded.batch.schema.names), "written and read back")


@quotations.of(Format.decoder, "in the schema's order (None: all).")
def rows_have_the_columns_of_the_schema(case: PlayedFormat) -> None:
    decoder = case.format.decoder()
    found = decoder.decode(case.encoded()).batch.schema
    assert found == decoder.schema, f"the decoder has {decoder.schema}, and rows have {found}"
    said = case.format.schema
    assert said is not None, "the kit needs a format that decodes"
    assert decoder.schema.names == said.names, (
        f"the format has {said.names}, its decoder {decoder.schema.names}"
    )


@quotations.of(Encoder.encode, "for each row")
def a_part_of_a_batch_is_written_as_its_rows(case: PlayedFormat) -> None:
    """A slice of a batch has an offset into its buffers."""
    encoder = case.format.encoder(case.rows.schema)
    whole = encoder.encode(case.rows).to_pylist()
    part = encoder.encode(case.rows.slice(1)).to_pylist()
    assert part == whole[1:], (
        f"rows from the second on are written as {part}, and in the batch as {whole[1:]}"
    )


@quotations.of(Decoder.decode, "Values to rows")
def all_forms_of_values_are_read_alike(case: PlayedFormat) -> None:
    """Objects of bytes, Arrow arrays of both types, and a part of an array."""
    values = case.encoded()
    expected = case.format.decoder().decode(values).batch
    beside = [values[0], *values]
    forms: dict[str, Any] = {
        "binary": pa.array(values, pa.binary()),
        "large_binary": pa.array(values, pa.large_binary()),
        "a part of an array": pa.array(beside, pa.binary()).slice(1),
    }
    for name, form in forms.items():
        same(case.format.decoder().decode(form).batch, expected, name)


@quotations.of(Decoded, "Each is a row of `batch`, or in `bad`")
def each_value_is_a_row_or_is_bad(case: PlayedFormat) -> None:
    if not case.bad:
        raise SkipTest("the kit names no bad values: bad()")
    good = case.encoded()
    values = [good[0], *case.bad, good[-1]]
    decoded = case.format.decoder().decode(values)
    bad, rows = sorted(each.row for each in decoded.bad), places(decoded, len(values))
    expected = list(range(1, len(values) - 1))
    assert bad == expected, f"values {expected} are bad, and it says that of {bad}"
    assert rows == [0, len(values) - 1], f"the good values are 0 and {len(values) - 1}, and it says {rows}"
    assert all(each.reason for each in decoded.bad), "a bad value has no reason"


@quotations.of(Decoder.decode, "Never raises for what a value holds: that is a BadValue.")
def a_damaged_value_raises_nothing(case: PlayedFormat) -> None:
    """Cut off, with a byte changed, and not there at all."""
    for value in case.encoded()[:2]:
        step = max(1, len(value) // CUTS)
        damaged: list[bytes | None] = [value[:end] for end in range(0, len(value), step)]
        damaged += [
            value[:at] + bytes([value[at] ^ 0xFF]) + value[at + 1 :] for at in range(0, len(value), step)
        ]
        damaged.append(None)
        decoded = case.format.decoder().decode(damaged)
        count = len(places(decoded, len(damaged)))
        assert decoded.batch.num_rows == count, (
            f"{count} rows are named, and there are {decoded.batch.num_rows}"
        )
        accounted = {*places(decoded, len(damaged)), *(each.row for each in decoded.bad)}
        assert len(accounted) == count + len(decoded.bad), "a value is both a row and bad"


@quotations.of(Format.decoder, "A decoder of these columns, in the schema's order")
def fewer_columns_are_read_as_among_all(case: PlayedFormat) -> None:
    values = case.encoded()
    whole = case.format.decoder().decode(values).batch
    for name in whole.schema.names:
        one = case.format.decoder(frozenset({name})).decode(values).batch
        assert one.schema.names == [name], f"decoder({{{name!r}}}) has the columns {one.schema.names}"
        same(one, whole.select([name]), f"column {name!r} alone")


@quotations.of(Decoder, "Decodes for one reader.")
def a_decoder_and_an_encoder_are_used_again(case: PlayedFormat) -> None:
    """One decoder and encoder serve the whole life of a reader; the first rows must not change by what comes
    later."""
    encoder, decoder = case.format.encoder(case.rows.schema), case.format.decoder()
    values = encoder.encode(case.rows).to_pylist()
    first = decoder.decode(values)
    text = repr(first.batch.to_pylist())
    decoder.decode(values[::-1])
    decoder.decode([])
    assert encoder.encode(case.rows.slice(0, 0)).to_pylist() == []
    assert encoder.encode(case.rows).to_pylist() == values, "the same rows are written differently"
    assert repr(first.batch.to_pylist()) == text, "rows that were decoded have changed"
    same(decoder.decode(values).batch, first.batch, "decoded again")


@quotations.of(Format, "The description of a format.")
def a_new_process_reads_what_was_written(case: PlayedFormat) -> None:
    if case.elsewhere is None:
        raise SkipTest("in_new_processes is False")
    values = case.encoded()
    here = repr(case.format.decoder().decode(values).batch.to_pylist())
    there = case.elsewhere("read_values", {"values": [value.hex() for value in values]})
    assert there == here, f"here they are {here}, and in a new process {there}"


FORMAT_CHECKS: Sequence[Callable[[PlayedFormat], None]] = (
    each_row_is_written_as_one_value,
    what_is_written_is_read_back,
    rows_have_the_columns_of_the_schema,
    a_part_of_a_batch_is_written_as_its_rows,
    all_forms_of_values_are_read_alike,
    each_value_is_a_row_or_is_bad,
    a_damaged_value_raises_nothing,
    fewer_columns_are_read_as_among_all,
    a_decoder_and_an_encoder_are_used_again,
    a_new_process_reads_what_was_written,
)


def read_values(case: PlayedFormat, arguments: Mapping[str, Json]) -> Json:
    """In another process: the values as rows, as text."""
    given: Any = arguments["values"]
    return repr(case.format.decoder().decode([bytes.fromhex(value) for value in given]).batch.to_pylist())


SCENARIOS: Mapping[str, Callable[[PlayedFormat, Mapping[str, Json]], Json]] = {
    read_values.__name__: read_values
}
