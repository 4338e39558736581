"""HybridSource: what can be one stream, and what is refused when it is described."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.collections.given_records import elements_source, records_source
from onceflow.connectors.formats import Json
from onceflow.connectors.hybrid import HybridSource
from onceflow.connectors.kafka import KafkaSource
from onceflow.runtime.contracts import Source
from onceflow.runtime.errors import OptionError


@dataclass
class Seen:
    user: str
    n: int


def kafka(**options: Any) -> KafkaSource:
    return KafkaSource(
        bootstrap_servers="localhost:9092", **{"topics": ["seen"], "value": Json(Seen), **options}
    )


HISTORY: Source = records_source(pa.table({"n": [1], "user": ["a"]}), None)


def test_its_columns_are_the_last_ones_and_may_be_null_where_any_may() -> None:
    source = HybridSource([HISTORY, kafka()])
    assert source.schema.names == ["user", "n"]
    assert all(source.schema.field(name).nullable for name in source.schema.names)
    assert source.record_type is Seen
    assert not source.is_bounded


def test_it_is_given_no_end_by_a_run() -> None:
    with pytest.raises(
        OptionError, match="a HybridSource has no end, since its last source begins only when"
    ):
        HybridSource([HISTORY, kafka()]).ended("latest")


def test_fewer_columns_are_asked_of_each() -> None:
    source = HybridSource([kafka(until="latest"), kafka()]).project(frozenset({"n"}))
    assert source.schema.names == ["n"]
    assert [each.schema.names for each in source.sources] == [["n"], ["n"]]
    assert HybridSource([HISTORY, kafka()]).project(frozenset({"n"})).schema.names == ["n"]


def test_its_description_is_picklable() -> None:
    source = HybridSource([kafka(until="latest"), kafka()])
    assert pickle.loads(pickle.dumps(source)) == source


def test_dead_letters_of_all_go_to_one_topic() -> None:
    letters = {"errors_tolerance": "all", "dead_letter_topic": "dead"}
    assert HybridSource([HISTORY, kafka()]).dead_letter_sink() is None
    assert HybridSource([HISTORY, kafka(**letters)]).dead_letter_sink() is not None
    with pytest.raises(OptionError, match="several dead-letter topics"):
        HybridSource([kafka(until="latest", **letters | {"dead_letter_topic": "other"}), kafka(**letters)])


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ([kafka()], "two sources or more"),
        ([kafka(), kafka()], "source 1 has no end, and is not the last: bound it"),
        ([HISTORY, kafka(until="latest")], "source 2 has an end, and the last one must not"),
        ([elements_source([1], None), kafka()], "is not in the last one|is not in source 1"),
        ([records_source(pa.table({"n": [1]}), None), kafka()], "'user' is not in source 1"),
        (
            [records_source(pa.table({"n": [1], "user": ["a"], "usr": ["b"]}), None), kafka()],
            "'usr' is not in the last one, did you mean 'user'|'usr' is not in the last one",
        ),
        (
            [records_source(pa.table({"n": ["1"], "user": ["a"]}), None), kafka()],
            "'n' is string in source 1 and int64 in the last one",
        ),
    ],
)
def test_what_can_not_be_one_stream_is_refused_in_a_sentence(sources: list[Source], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        HybridSource(sources)
