"""MessageSource: what follows from the format of the messages and the columns beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from onceflow.connectors.bad_records import Tolerance
from onceflow.connectors.formats import Debezium, Format, Json
from onceflow.connectors.message_fields import named_fields
from onceflow.connectors.message_source import MessageSource
from onceflow.runtime.contracts import Sink
from onceflow.runtime.errors import OptionError, UsageError
from onceflow.sinks.print import PrintSink

VALUE = Json(pa.schema([("a", pa.int64()), ("b", pa.string())]))


@dataclass(frozen=True, kw_only=True)
class Letters(MessageSource):
    value: Format = VALUE
    names: Sequence[str] = ()
    wait: str = "1 s"
    errors_tolerance: Tolerance = "none"
    dead_letters: Sink | None = None
    columns: frozenset[str] | None = None
    id_column: str | None = "id"

    def beside(self) -> dict[str, pa.Field]:
        return named_fields({}, id=self.id_column, to=None)


def test_its_columns_are_those_of_the_body_and_those_beside() -> None:
    assert Letters().schema.names == ["a", "b", "id"]
    assert Letters().read_beside() == ["id"]
    projected = Letters().project(frozenset({"b"}))
    assert projected.schema.names == ["b"]
    assert projected.read_beside() == []
    assert projected.rows().schema == projected.schema


def test_what_comes_of_a_changelog_is_one() -> None:
    assert not Letters().has_kinds
    assert Letters(value=Debezium(VALUE)).has_kinds


def test_what_can_not_be_decoded_is_tolerated_where_it_has_a_place() -> None:
    assert not Letters().rows().tolerates_bad
    printed = Letters(dead_letters=PrintSink())
    printed.check_message_source("letters", "json", ())
    assert printed.rows().tolerates_bad
    assert printed.dead_letter_sink() == PrintSink()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Letters(value=Json()), "can only encode"),
        (Letters(wait="soon"), "wait"),
        (Letters(errors_tolerance="all"), "needs a place"),
        (Letters(id_column="a"), "two columns of the source are named 'a'"),
    ],
)
def test_what_is_wrong_in_any_of_them_is_refused(made: Letters, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        made.check_message_source("letters", "json", ("wait",))


def test_a_package_that_is_not_there_is_named_with_its_extra() -> None:
    with pytest.raises(UsageError, match=r"Letters needs .* pip install 'onceflow\[letters\]'"):
        Letters().check_message_source("letters", "no_such_package", ())


@pytest.mark.parametrize("names", [(), ("a", "a"), ("",), (1,)])
def test_names_are_given_each_once(names: Sequence[str]) -> None:
    with pytest.raises(OptionError, match=r"Letters: names=.*: give the names of letters, each once"):
        Letters(names=names).check_names("names", "letters")


def test_names_that_are_optional_may_lack() -> None:
    Letters().check_names("names", "letters", is_optional=True)
