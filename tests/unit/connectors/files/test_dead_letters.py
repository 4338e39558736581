"""Records of files that can't be decoded: each is a dead letter once, wherever reading is cut and resumed."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow import Job
from onceflow.connectors.files.csv_files import Csv
from onceflow.connectors.files.json_lines import JsonLines
from onceflow.connectors.files.source import FileSource, files_source
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import DeadLetterSource, ReaderContext
from onceflow.runtime.errors import BadRecordError, JobFailedError, OptionError
from onceflow.sinks.print import PrintSink

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("text", pa.string())])
LINES = {
    ".jsonl": {"good": '{"n":%d,"text":"x"}', "bad": '{"n":"%d"}', "blank": ""},
    ".csv": {"good": '%d,"a ""b"""', "bad": "x%d,y,z", "blank": ""},
}
KINDS = st.lists(st.sampled_from(["good", "bad", "blank"]), max_size=12)


def source_of(folder: Path, ending: str, kinds: list[str], dead_letters: Any) -> FileSource:
    lines = [LINES[ending][kind] % n if kind != "blank" else "" for n, kind in enumerate(kinds)]
    head = ["n,text"] if ending == ".csv" else []
    (folder / f"a{ending}").write_text("".join(f"{line}\n" for line in [*head, *lines]))
    form: Any = JsonLines(block_bytes=40) if ending == ".jsonl" else Csv(block_bytes=40)
    return replace(
        files_source(str(folder / f"a{ending}"), SCHEMA, form, dead_letters=dead_letters), watch_ms=None
    )


@pytest.mark.parametrize("ending", LINES)
@settings(max_examples=40, deadline=None)
@given(kinds=KINDS, records_max=st.integers(1, 5), cuts=st.lists(st.booleans(), max_size=30))
@example(kinds=["bad", "good", "bad"], records_max=1, cuts=[True] * 9)  # a restart after each record
@example(kinds=["bad"] * 6, records_max=5, cuts=[True] * 9)  # pieces without a row
@example(kinds=["good", "bad", "blank", "good"] * 3, records_max=2, cuts=[False, True] * 9)
def test_each_record_is_a_row_or_a_dead_letter_once(
    ending: str, kinds: list[str], records_max: int, cuts: list[bool]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = source_of(Path(folder), ending, kinds, PrintSink())
        splits = list(source.open_enumerator("job", ManualClock()).initial_splits())
        text = (Path(folder) / f"a{ending}").read_bytes()
        rows, letters, origins, restarts = list[Any](), list[Any](), list[int](), iter(cuts)
        reader = source.open_reader(ReaderContext("job", "files", 0, 1, ManualClock(), with_origin=True))
        reader.add_splits(splits)
        while (fetch := reader.poll(0, records_max)) is not None:
            rows += fetch.records.column("n").to_pylist()
            assert fetch.offset is not None
            origins += fetch.offset.tolist()
            if fetch.dead_letters is not None:
                letters += fetch.dead_letters.to_pylist()
            if next(restarts, False) and not fetch.finished:
                splits = list(reader.snapshot())
                reader.close()
                reader = source.open_reader(
                    ReaderContext("job", "files", 0, 1, ManualClock(), with_origin=True)
                )
                reader.add_splits(splits)
    assert rows == [n for n, kind in enumerate(kinds) if kind == "good"]
    records = [kind for kind in kinds if kind != "blank"]
    assert origins == [place for place, kind in enumerate(records) if kind == "good"]
    wrong = [(LINES[ending]["bad"] % n).encode() for n, kind in enumerate(kinds) if kind == "bad"]
    assert [letter["value"] for letter in letters] == wrong
    for letter in letters:
        assert text[letter["offset"] :].startswith(letter["value"] + b"\n")
        assert letter["topic"].endswith(f"a{ending}")
        assert letter["reason"]


@dataclass(frozen=True)
class Count:
    n: int
    text: str | None = None


@pytest.mark.parametrize("ending", LINES)
def test_a_job_goes_on_without_them_if_they_have_a_place(ending: str, tmp_path: Path) -> None:
    source_of(tmp_path, ending, ["good", "bad", "good"], None)
    job = Job("files")
    job.from_files(str(tmp_path / f"a{ending}"), Count, dead_letters=PrintSink("bad")).print()
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        job.run(master="threads[1]")
    lines = shown.getvalue().splitlines()
    assert [json.loads(line)["n"] for line in lines if not line.startswith("bad> ")] == [0, 2]
    (bad,) = [json.loads(line.removeprefix("bad> ")) for line in lines if line.startswith("bad> ")]
    assert (bad["topic"], bad["stage"]) == (str(tmp_path / f"a{ending}"), "value")
    strict = Job("strict")
    strict.from_files(str(tmp_path / f"a{ending}"), Count).print()
    with pytest.raises(JobFailedError, match=r"To go on without such records, give errors_tolerance="):
        strict.run(master="threads[1]")


def test_without_a_place_the_first_is_named_with_its_byte(tmp_path: Path) -> None:
    source = source_of(tmp_path, ".csv", ["good", "bad"], None)
    assert isinstance(source, DeadLetterSource)
    reader = source.open_reader(ReaderContext("job", "files", 0, 1, ManualClock()))
    reader.add_splits(source.open_enumerator("job", ManualClock()).initial_splits())
    place = (tmp_path / "a.csv").read_bytes().index(b"x1,y,z")
    with pytest.raises(BadRecordError, match=rf"a\.csv: the record at byte {place} can\'t be decoded"):
        reader.poll(0, 100)


def test_a_format_without_bad_records_refuses_a_place_for_them(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="leave them out for parquet"):
        files_source(str(tmp_path / "a.parquet"), SCHEMA, dead_letters=PrintSink())
