"""Count the words of a list: no broker, no Spark, no files.

python examples/word_count_list.py
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Job

LINES = ["to be or not to be", "that is the question"]


@dataclass(frozen=True, slots=True)
class Line:
    text: str


@dataclass(frozen=True, slots=True)
class Count:
    word: str
    count: int


def split(line: Line) -> Iterator[Count]:
    for word in re.findall(r"\w+", line.text.lower()):
        yield Count(word, 1)


def add(so_far: Count, one: Count) -> Count:
    return Count(so_far.word, so_far.count + one.count)


def counts_of(lines: list[str]) -> dict[str, int]:
    job = Job("word-count-list")
    words = job.from_records([Line(text) for text in lines]).flat_map(split)
    rows = words.key_by("word").reduce(add).collect()
    job.run(master="threads[1]")
    return {row.word: row.count for row in rows}  # a row each time a word came: its last one has them all


if __name__ == "__main__":
    for word, count in sorted(counts_of(LINES).items()):
        print(count, word)
