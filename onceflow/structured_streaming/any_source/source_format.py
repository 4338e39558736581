"""SourceFormat: how a source of the runtime becomes a format to read, as in `.format("onceflow-kinesis")`.

A registration is a class in `formats.py`, and its line in FORMATS there. What can be registered is a
BatchedSource (runtime/contracts/batches.py), and nothing else has to be written for it: Spark writes the end
of a batch to its checkpoint before the batch is read, so a source has to know it then, and to bring the same
rows however often they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from onceflow.runtime.contracts import BatchLimit, Source
from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest
from onceflow.structured_streaming.corrupt_records import OPTIONS, ColumnOfTheirOwn, tolerance_of
from onceflow.structured_streaming.option_texts import Convert, text


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """A format and its source. `make` gets the converted options that were given and the columns that the
    user asked for, and raises OptionError. `columns`: those of what is there, if the user gives none; None:
    the user has to. `limits`: which of BatchLimit's fields an option sets; `by_default`: what they are else.
    """

    name: str
    make: Callable[[Mapping[str, Any], pa.Schema], Source]
    options: Mapping[str, Convert]
    needs: tuple[str, ...] = ()
    has_kinds: bool = False
    """Whether rows may update and delete earlier ones: then a column has to be named for it."""
    columns: Callable[[Mapping[str, Any]], pa.Schema] | None = None
    limits: Mapping[str, tuple[str, Convert]] = field(default_factory=dict)
    by_default: BatchLimit = field(default_factory=BatchLimit)
    of_letters: Mapping[str, str] | None = None
    """What is known of a record that can't be decoded: which column of a dead letter the column that an
    option names has. None: the source decodes nothing."""


_KIND_COLUMN = "kind_column"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the user asked of `readStream`, converted."""

    given: Mapping[str, Any]
    limit: BatchLimit
    kind_column: str | None = None
    """The column of the schema that says what a row does to the result so far; None: all rows are new."""
    corrupt: Mapping[str, str] = field(default_factory=dict)
    """What is to become of records that can't be decoded: corrupt_records.py."""


def read_options(form: SourceFormat, options: Mapping[str, str]) -> ReadOptions:
    """Raises OptionError naming the option that is unknown, malformed or missing."""
    kinds = {_KIND_COLUMN: text} if form.has_kinds else {}
    corrupt = {} if form.of_letters is None else dict.fromkeys(OPTIONS, text)
    convert_by = {**form.options, **kinds, **corrupt}
    here = {_plain(name): name for name in (*convert_by, *form.limits)}
    given: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for option, value in options.items():
        name = here.get(_plain(option))
        if name is None:
            raise OptionError(
                f"{form.name} has no option {option!r} for readStream{nearest(option, here.values())}: use "
                f"{', '.join(here.values())}"
            )
        if name in form.limits:
            which, convert = form.limits[name]
            limits[which] = convert(name, value)
        else:
            given[name] = convert_by[name](name, value)
    for name in (*form.needs, *kinds):
        if name not in given:
            raise OptionError(f'readStream of {form.name} needs .option("{name}", ...)')
    kind_column = given.pop(_KIND_COLUMN) if kinds else None
    of_corrupt = {name: given.pop(name) for name in OPTIONS if name in given}
    if tolerance_of(of_corrupt) == "all":
        given["dead_letters"] = ColumnOfTheirOwn()
    limit = BatchLimit(**{**_fields(form.by_default), **limits})
    return ReadOptions(given, limit, kind_column, of_corrupt)


def schema_of(form: SourceFormat, options: Mapping[str, str]) -> Any:
    """The columns of a stream for which the user gave none. Raises OptionError if only users know them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    asked = read_options(form, options)
    if form.columns is None:
        raise OptionError(f'{form.name} needs the columns: .schema("user STRING, amount BIGINT")')
    return from_arrow_schema(form.columns(asked.given))


def _plain(option: str) -> str:
    """Spark's manner of writing names, and ours, are one: maxFilesPerTrigger is max_files_per_trigger."""
    return option.replace("_", "").lower()


def _fields(limit: BatchLimit) -> dict[str, Any]:
    return {name: getattr(limit, name) for name in BatchLimit.__slots__}
