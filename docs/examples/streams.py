"""Columns by expressions, records by functions, batches by either; and several streams."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from onceflow import Job, col, lit


@dataclass(frozen=True)
class Line:
    text: str


@dataclass(frozen=True)
class Word:
    word: str
    length: int


def words(line: Line) -> Iterator[Word]:
    for word in line.text.split():
        yield Word(word, len(word))


def upper(word: Word) -> Word:
    return Word(word.word.upper(), word.length)


def cut(word: Word) -> Word:
    return Word(word.word[:-1], word.length - 1)


def doubled(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(col("length") * 2)


job = Job("words")
lines = job.from_elements(Line("to be or"), Line("not to be"))
every_word = lines.rebalance().flat_map(words)
assert every_word.schema.names == ["word", "length"]
assert every_word.record_type is Word

long_ones = every_word.filter(col("length") > 2).map(upper).collect()
columns = (
    every_word.select("word", kind=lit("word"))
    .with_columns(first=col("word").str.head(1))
    .collect()
)
schema = pa.schema([("word", pa.string()), ("length", pa.int64())])
batches = every_word.map_batches(doubled, schema).collect()
shorter = every_word.iterate(
    lambda loop: (
        loop.filter(col("length") > 2).map(cut),
        loop.filter(col("length") <= 2),
    )
).collect()
both = every_word.union(every_word.filter(lambda word: word.word == "be")).collect()

job.run(master="threads[2]")
assert long_ones == [Word("NOT", 3)]
assert {row["first"] for row in columns} == {"t", "b", "o", "n"}
assert sorted(row["length"] for row in batches) == [4, 4, 4, 4, 4, 6]
assert len(both) == 8
assert {row.word for row in shorter} == {"to", "be", "or", "no"}
