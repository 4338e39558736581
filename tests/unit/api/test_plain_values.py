"""Functions of streams of plain values: annotated with the type of the values, they get the values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from onceflow import Job, errors_to
from onceflow.runtime.errors import GraphError, JobFailedError


@dataclass(frozen=True)
class Word:
    text: str
    length: int


def words(line: str) -> Iterator[Word]:
    for word in line.split():
        yield Word(word, len(word))


def double(value: int) -> Word:
    return Word("n", 2 * value)


def maybe(value: int | None) -> Word:
    return Word(repr(value), 0)


def test_each_function_of_a_record_gets_the_value_that_it_is_annotated_with() -> None:
    def is_long(line: str) -> bool:
        return len(line) > 2

    def initial(line: str) -> str:
        return line[0]

    job = Job("lines")
    lines = job.from_elements("to be", "or", "not to")
    made = lines.filter(is_long).flat_map(words).collect()
    by_initial = lines.key_by(initial).reduce(lambda _, new: new).collect()
    asked = lines.map_async(lambda line: Word(line.value, 0), returns=Word).collect()
    parts = lines.split(initial, into=["t", "o", "n"])["o"].collect()
    job.run(master="threads[1]")
    assert [word.text for word in made] == ["to", "be", "not", "to"]
    assert [row["key"] for row in by_initial] == ["t", "o", "n"]
    assert asked[0] == Word("to be", 0)
    assert parts == [{"value": "or"}]


def test_a_value_that_may_be_null() -> None:
    job = Job("values")
    nullable = job.from_elements(1, None).map(maybe).collect()
    job.run(master="threads[1]")
    assert nullable == [Word("1", 0), Word("None", 0)]


def test_a_value_that_a_function_fails_on_is_shown_and_put_aside() -> None:
    def parse(line: str) -> Word:
        return Word(line, int(line))

    job = Job("numbers")
    numbers = job.from_elements("5", "five").map(parse, on_error=errors_to("bad"))
    good, bad = numbers.collect(), numbers.side_output("bad").collect()
    job.run(master="threads[1]")
    assert good == [Word("5", 5)]
    assert [row["record"] for row in bad] == [{"value": "five"}]

    failing = Job("fails")
    failing.from_elements("five").map(parse).collect()
    with pytest.raises(JobFailedError, match=r"parse failed on the record.* 'five'"):
        failing.run(master="threads[1]")


def test_values_of_another_type_are_refused() -> None:
    lines = Job("lines").from_elements("ann")
    with pytest.raises(GraphError, match="double takes int, but the values of the stream are string: "):
        lines.map(double)
    with pytest.raises(GraphError, match=r"double takes int, .* may be null: .* as int \| None"):
        Job("numbers").from_elements(1, None).map(double)
