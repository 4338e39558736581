"""The table that is written to, as a catalog describes it, and what it has to be for a sink. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from onceflow.runtime.errors import Fatal


@dataclass(frozen=True, slots=True)
class TableName:
    """A table and its schema (in MySQL: its database); empty: where the connection looks for it."""

    schema: str
    name: str

    @staticmethod
    def of(text: str) -> TableName:
        """`table` or `schema.table`, as they are spelled in the catalog: nothing is folded to lower case."""
        schema, _, name = text.rpartition(".")
        return TableName(schema, name)

    def beside(self, name: str) -> TableName:
        """A table in the same schema, unless it names its own."""
        other = TableName.of(name)
        return other if other.schema else TableName(self.schema, other.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


class DescribedColumn(Protocol):
    """A column of a table, as far as all databases agree."""

    @property
    def name(self) -> str: ...

    @property
    def is_required(self) -> bool:
        """NOT NULL without a default."""
        ...

    @property
    def is_generated(self) -> bool:
        """The database computes it, and takes no value for it."""
        ...


C = TypeVar("C", bound=DescribedColumn)


@dataclass(frozen=True, slots=True)
class Table(Generic[C]):
    """What is there."""

    name: TableName
    columns: Sequence[C]
    unique_keys: Sequence[frozenset[str]]
    """The columns of each unique index that holds for all rows and can be checked at once."""

    def column(self, name: str) -> C | None:
        return next((column for column in self.columns if column.name == name), None)


def check_may_create(name: TableName, statement: str, where: str, may_create: bool) -> None:
    """Raises Fatal for a table that is not there and that nobody wants made. `statement`: what makes it."""
    if not may_create:
        raise Fatal(
            f"{where}: there is no table {name}, or it may not be seen: create it, or say create_table=True, "
            f"which does: {statement}"
        )


def check_table(
    table: Table[C], written: Sequence[str], key: Sequence[str], where: str, create_index: str
) -> None:
    """Raises Fatal if rows with these columns can't be written, or not by this key. `create_index`: the
    statement that makes the index which they lack."""
    for name in written:
        column = table.column(name)
        if column is None:
            names = ", ".join(each.name for each in table.columns)
            raise Fatal(f"{where}: table {table.name} has no column {name!r}; it has {names}")
        if column.is_generated:
            raise Fatal(
                f"{where}: column {name!r} of table {table.name} is generated: leave it out of the rows"
            )
    for column in table.columns:
        if column.is_required and column.name not in written:
            raise Fatal(
                f"{where}: column {column.name!r} of table {table.name} is NOT NULL without a default, and "
                "the rows have no such column: give the column a default, or the rows the column"
            )
    if key and frozenset(key) not in table.unique_keys:
        raise Fatal(
            f"{where}: rows are written by key {', '.join(key)}, and table {table.name} has no unique index "
            f"on just that: {create_index}"
        )
