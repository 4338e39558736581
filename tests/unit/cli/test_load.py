"""Finding the user's job, and sending it to where its module is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceflow.cli.load import load_job
from onceflow.runtime.errors import GraphError, UsageError

JOB = "from onceflow import Job\njob = Job('mine')\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    before = [*sys.path]
    yield tmp_path
    sys.path[:] = before


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return name


def test_a_file_with_a_job(folder: Path) -> None:
    loaded = load_job(write(folder, "plain.py", JOB))
    assert loaded.job.name == "mine"
    assert loaded.program.module is not None
    assert loaded.program.module.__name__ == "onceflow_job_plain"
    assert loaded.program.folder == folder


def test_a_file_called_like_a_module_of_python(folder: Path) -> None:
    loaded = load_job(write(folder, "json.py", JOB))
    assert loaded.job.name == "mine"
    assert sys.modules["json"].loads("1") == 1


def test_attribute_and_module(folder: Path) -> None:
    write(folder, "mine_and_yours.py", JOB + "other = Job('yours')\n")
    assert load_job("mine_and_yours.py:other").job.name == "yours"
    assert load_job("mine_and_yours:other").job.name == "yours"
    with pytest.raises(
        UsageError, match=r"has several jobs: name one, as in mine_and_yours.py:job \(job, other\)"
    ):
        load_job("mine_and_yours.py")


def test_build_gets_the_arguments(folder: Path) -> None:
    text = "from onceflow import Job\ndef build(arguments):\n    return Job('-'.join(arguments))\n"
    assert load_job(write(folder, "built.py", text), ["a", "b"]).job.name == "a-b"
    assert load_job("built.py:build", ["c"]).job.name == "c"


def test_a_setting_with_a_default_is_not_given_the_arguments(folder: Path) -> None:
    text = "from onceflow import Job\ndef build(name='mine', parts=2): return Job(name)\n"
    target = write(folder, "setting.py", text)
    assert load_job(target).job.name == "mine"
    with pytest.raises(UsageError, match="takes no arguments, but after '--' there are: --x"):
        load_job(target, ["--x"])


def test_neighbours_come_along(folder: Path) -> None:
    write(folder, "neighbour_of_job.py", "NAME = 'next-door'\n")
    text = "from onceflow import Job\nfrom neighbour_of_job import NAME\njob = Job(NAME)\n"
    loaded = load_job(write(folder, "with_neighbour.py", text))
    assert loaded.job.name == "next-door"
    assert loaded.program.folder == folder, "where slots find the neighbour too"


@pytest.mark.parametrize(
    ("target", "text", "arguments", "sentence"),
    [
        ("gone.py", None, [], "there is no file gone.py"),
        ("goods.py", None, [], r"there is no file goods.py \(did you mean 'good.py'\?\)"),
        ("no such", None, [], "'no such' names no job: write FILE.py, FILE.py:name"),
        ("not_a_module_at_all", None, [], "there is no module 'not_a_module_at_all'"),
        ("good.py:jobb", JOB, [], r"good.py:jobb: there is no 'jobb' in it \(did you mean 'job'\?\)"),
        ("good.py", JOB, ["--x"], "good.py has a job that takes no arguments, but after '--' there are: --x"),
        ("empty.py", "x = 1\n", [], "empty.py has no job: make one at the top level"),
        ("text.py:x", "x = 1\n", [], "text.py:x is a int; expected a Job"),
        ("none.py", "def build(): pass\n", [], "none.py returned a NoneType; expected a Job"),
        ("few.py", "def build(): pass\n", ["a"], "few.py takes no arguments, but after '--' there are: a"),
        ("syntax.py", "x =\n", [], r"syntax.py:1: invalid syntax"),
        (
            "needs.py",
            "def build(arguments):\n    return arguments[0]\n",
            [],
            r"needs.py:2: IndexError: list index out of range: build was given \[\], since there is nothing",
        ),
        (
            "runs.py",
            JOB + "\njob.run()\n",
            [],
            r"runs.py:\d+: .*the command would run it once more: write `if",
        ),
        ("raises.py", "\n1 / 0\n", [], r"raises.py:2: ZeroDivisionError: division by zero"),
        (
            "imports.py",
            "import not_there\n",
            [],
            r"imports.py:1: ModuleNotFoundError: No module named 'not_there'",
        ),
    ],
)
def test_mistakes_are_one_sentence(
    folder: Path, target: str, text: str | None, arguments: list[str], sentence: str
) -> None:
    write(folder, "good.py", JOB)
    if text is not None:
        write(folder, target.partition(":")[0], text)
    with pytest.raises(UsageError, match=sentence):
        load_job(target, arguments)


def test_graph_errors_pass(folder: Path) -> None:
    with pytest.raises(GraphError, match="job name 'a b'"):
        load_job(write(folder, "wrong.py", "from onceflow import Job\njob = Job('a b')\n"))


PROGRAM = """
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from onceflow import (
    AggregateFunction, Ctx, Job, KeyedProcess, ListState, SideOutput, ValueState, WatermarkStrategy, tumbling
)
from onceflow.runtime.types.record_types import arrow_schema


class Inner(NamedTuple):
    n: int


@dataclass(frozen=True)
class Word:
    word: str
    inner: Inner | None = None


class Count(KeyedProcess[str, Word, Word]):
    count = ValueState("count", Inner)
    seen = ListState("seen", Word)
    side = SideOutput("side", Word)

    def process(self, record: Word, ctx: Ctx) -> Iterator[Word]:
        self.count.set(Inner((self.count.get() or Inner(0)).n + 1))
        self.seen.add(record)
        ctx.emit(self.side, record)
        yield shout(Word(record.word, self.count.get()))


@dataclass(frozen=True)
class Longest:
    word: str
    inner: Inner


class FindLongest(AggregateFunction[Word, Longest, str]):
    def create_accumulator(self) -> Longest:
        return Longest("", Inner(0))

    def add(self, value: Word, accumulator: Longest) -> Longest:
        return Longest(max(value.word, accumulator.word, key=len), Inner(1))

    def merge(self, accumulator_a: Longest, accumulator_b: Longest) -> Longest:
        return accumulator_a

    def get_result(self, accumulator: Longest) -> str:
        return accumulator.word


def shout(word: Word) -> Word:
    return Word(word.word.upper(), word.inner)


class Source:
    schema = arrow_schema(Word)
    record_type = Word
    is_bounded = True


class Sink:
    def check(self, schema, uid): pass


job = Job("travels")
words = job.source(Source(), WatermarkStrategy.monotonous(), uid="words")
windows = words.key_by("word").window(tumbling("1 s"))
windows.aggregate(uid="longest", longest=FindLongest()).sink_to(Sink(), uid="longest-out")
windows.reduce(lambda a, b: a, uid="reduced").sink_to(Sink(), uid="reduced-out")
shouted = words.map(shout, uid="map")
shouted.key_by("word").process(Count(), uid="count").sink_to(Sink(), uid="out")
"""

SLOT = """
import pathlib, sys
import numpy as np, pyarrow as pa
from onceflow.runtime.hosts.spark.shipping import unpack_graph
graph = unpack_graph(pathlib.Path(sys.argv[1]).read_bytes())
assert not [n for n, m in sys.modules.items() if "travels" in n and hasattr(m, "__file__")], "not the file"
from onceflow.runtime.records import Records
from onceflow.runtime.testing.harness import LONE_SUBTASK, OperatorHarness
mapped = graph.chains[0].nodes["map"].create()
class Out:
    def emit(self, records, tag=""): self.records = records
out = Out()
mapped.open(LONE_SUBTASK, out)
schema = graph.chains[0].nodes["words"].source.schema
words = pa.RecordBatch.from_pylist([{"word": "a"}, {"word": "b", "inner": {"n": 3}}], schema)
mapped.on_records(Records(words))
assert out.records.batch.to_pylist() == [{"word": "A", "inner": None}, {"word": "B", "inner": {"n": 3}}]
def created(uid):
    return next(c.nodes[uid].create for c in graph.chains if uid in c.nodes)
create = created("count")
count = OperatorHarness(create, ["word"])
count.push(out.records.batch, [1, 2])
again = OperatorHarness(create, ["word"], parallelism=2, states=count.snapshot())
again.push(out.records.batch, [1, 2])
assert sorted((r["word"], r["inner"]["n"]) for r in again.rows()) == [("A", 2), ("B", 2)]
for uid in ("longest", "reduced"):
    window = OperatorHarness(created(uid), ["word"])
    window.push(words, [1, 2])
    window = OperatorHarness(created(uid), ["word"], parallelism=2, states=window.snapshot())
    window.push(words, [1, 2])
    window.finish()
    assert [r["word"] for r in window.rows()] in (["a", "b"], ["b", "a"]), window.rows()
print("fine")
"""


def test_the_users_code_runs_where_its_module_is_not(folder: Path) -> None:
    """It is so in a Spark worker: the file's functions and classes travel by value, annotations are text."""
    from onceflow.runtime.hosts.spark.shipping import pack_graph

    loaded = load_job(write(folder, "travels.py", PROGRAM))
    (folder / "graph.bin").write_bytes(pack_graph(loaded.job.build(), loaded.program.module))
    (folder / "travels.py").unlink()
    run = subprocess.run(
        [sys.executable, "-c", SLOT, str(folder / "graph.bin")], capture_output=True, text=True, check=False
    )
    assert run.stdout == "fine\n", run.stderr
