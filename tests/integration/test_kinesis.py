"""KinesisSource on servers that answer as Kinesis does: the contract, resharding in the order of parents,
what was trimmed, and what is refused."""

from __future__ import annotations

import datetime as dt
import functools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.kinesis import KinesisSource
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import ReaderContext, SplitState
from onceflow.runtime.errors import BadRecordError, DataLossError, Fatal, Unavailable, UsageError
from onceflow.sinks.print import PrintSink
from onceflow.testing.kit import SourceKit
from tests.kinesis_server import DAY_MS, WHY_NOT, KinesisServer
from tests.unit.connectors.kinesis.producer_library import aggregated

pytestmark = pytest.mark.kinesis
reshards = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
SCHEMA = pa.schema([("n", pa.int64())])
WAIT_S = 240


@pytest.fixture(scope="module")
def plain() -> Iterator[KinesisServer]:
    with KinesisServer(reshards=False) as server:
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[KinesisServer]:
    with KinesisServer(reshards=True) as server:
        yield server


def row(n: int) -> tuple[str, bytes]:
    """A record, by itself in its key."""
    return f"k{n}", json.dumps({"n": n}).encode()


def rows(numbers: Sequence[int]) -> list[tuple[str, bytes]]:
    return [row(n) for n in numbers]


class TestStream(SourceKit):
    """The contract, on moto, which is everywhere: nothing is resharded."""

    count: ClassVar[int] = 12

    @pytest.fixture(autouse=True)
    def _server(self, plain: KinesisServer) -> None:
        self.server = plain

    def prepare(self) -> None:
        stream, until = stream_of_rows(self.server, self.count)
        self.settings.update(self.server.place, stream=stream, until=until)

    def source(self) -> KinesisSource:
        given: dict[str, Any] = dict(self.settings)
        given["until"] = dt.datetime.fromisoformat(given["until"])
        return KinesisSource(**given, value=Json(SCHEMA), fetch_interval="1 ms")


@functools.cache
def stream_of_rows(server: KinesisServer, count: int) -> tuple[str, str]:
    """A stream that nothing is added to, so that all tests of the contract may read it; and a time to end at
    that is long enough ago for a reader to end at once."""
    stream = server.new_stream(3)
    server.put_many(stream, rows(range(count)))
    until = server.clock() + dt.timedelta(seconds=1)
    server.wait_until_all_is_past()
    return stream, until.isoformat()


# --- Readers --------------------------------------------------------------------------------------------


def source_of(server: KinesisServer, stream: str, **options: Any) -> KinesisSource:
    given = {"value": Json(SCHEMA), "fetch_interval": "1 ms", **server.place, **options}
    return KinesisSource(stream=stream, **given)


def initial(source: KinesisSource) -> list[SplitState]:
    with closing(source.open_enumerator("job", SystemClock())) as enumerator:
        return through_json(enumerator.initial_splits())


def discover(source: KinesisSource, known: Sequence[SplitState], finished: Any) -> list[SplitState]:
    with closing(source.open_enumerator("job", SystemClock())) as enumerator:
        return through_json(enumerator.discover_unfinished(frozenset(s.split_id for s in known), finished))


def check_restored(source: KinesisSource, splits: Sequence[SplitState]) -> None:
    with closing(source.open_enumerator("job", SystemClock())) as enumerator:
        enumerator.check_restored(splits)


def open_reader(source: KinesisSource, splits: Sequence[SplitState], **context: Any) -> Any:
    reader = source.open_reader(ReaderContext("job", "uid", 0, 1, SystemClock(), **context))
    reader.add_splits(splits)
    return reader


def through_json(splits: Sequence[SplitState]) -> list[SplitState]:
    return [SplitState(s.split_id, json.loads(json.dumps(dict(s.position)))) for s in splits]


def read(reader: Any, until: Callable[[list[Any], set[str]], bool], records_max: int = 1_000) -> list[Any]:
    """Rows, until they and the finished splits are enough."""
    seen: list[Any] = []
    finished: set[str] = set()
    deadline = time.monotonic() + WAIT_S
    while not until(seen, finished):
        assert time.monotonic() < deadline, f"{len(seen)} rows within {WAIT_S} s, finished: {finished}"
        if (fetch := reader.poll(0, records_max)) is None:
            threading.Event().wait(0.002)
            continue
        seen += fetch.records.to_pylist()
        finished |= fetch.finished
    return seen


def read_all(source: KinesisSource, splits: Sequence[SplitState]) -> list[int]:
    with closing(open_reader(source, splits)) as reader:
        found = read(reader, lambda seen, finished: len(finished) == len(splits))
    return [each["n"] for each in found]


def test_what_is_known_of_a_record_comes_beside_it(plain: KinesisServer) -> None:
    stream = plain.new_stream(1)
    plain.put(stream, [row(7)])
    names = {f"{name}_column": name for name in ("partition_key", "arrival_time", "shard", "sequence_number")}
    source = source_of(plain, stream, until="latest", **names)
    before = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1)
    with closing(open_reader(source, initial(source), with_timestamp=True, with_origin=True)) as reader:
        deadline = time.monotonic() + WAIT_S
        while (fetch := reader.poll(0, 10)) is None:
            assert time.monotonic() < deadline
            threading.Event().wait(0.002)
        (found,) = fetch.records.to_pylist()
    assert (found["n"], found["partition_key"], found["shard"]) == (7, "k7", "shardId-000000000000")
    assert found["arrival_time"] >= before
    assert found["sequence_number"].isdecimal()
    assert fetch.timestamp_ms.tolist() == [int(found["arrival_time"].timestamp() * 1000)]
    assert fetch.offset.tolist() == [0]


def test_a_start_at_a_time_reads_what_arrived_from_then_on(plain: KinesisServer) -> None:
    stream = plain.new_stream(1)
    plain.put(stream, rows(range(3)))
    whole = source_of(plain, stream, until="latest", arrival_time_column="at")
    with closing(open_reader(whole, initial(whole))) as reader:
        found = read(reader, lambda seen, finished: len(seen) == 3)
    for n in range(3):
        source = source_of(plain, stream, start=found[n]["at"], until=found[n]["at"])
        assert n in read_all(source, initial(source))
    last = found[-1]["at"]
    late = source_of(
        plain, stream, start=last + dt.timedelta(milliseconds=1), until=last + dt.timedelta(hours=1)
    )
    with closing(open_reader(late, initial(late))) as reader:
        deadline = time.monotonic() + WAIT_S
        while (fetch := reader.poll(0, 10)) is None:
            assert time.monotonic() < deadline
            threading.Event().wait(0.002)
        assert fetch.at_end
        assert not fetch.records.num_rows


def bounded(source: KinesisSource, splits: Sequence[SplitState], finished: Any = None) -> list[SplitState]:
    with closing(source.open_enumerator("job", SystemClock())) as enumerator:
        return through_json(enumerator.bounded(splits, finished))


def test_shards_of_a_savepoint_get_the_end_that_the_run_is_given(plain: KinesisServer) -> None:
    stream = plain.new_stream(1)
    plain.put(stream, rows(range(3)))
    endless = source_of(plain, stream, arrival_time_column="at")
    with closing(open_reader(endless, initial(endless))) as reader:
        found = read(reader, lambda seen, finished: len(seen) == 3, records_max=1)
        read_on = through_json(reader.snapshot())
    at = found[-1]["at"] + dt.timedelta(milliseconds=1)
    plain.wait_until_all_is_past()
    plain.put(stream, [row(3)])
    plain.wait_until_all_is_past()
    assert bounded(endless, read_on) == read_on, "it has no end"
    latest = endless.ended("latest")
    assert latest.is_bounded
    assert read_all(latest, bounded(latest, read_on)) == [3]
    by_time = endless.ended(f"timestamp:{at.isoformat()}")
    beginning = bounded(by_time, initial(endless))
    assert read_all(by_time, beginning) == [0, 1, 2]
    assert bounded(latest, beginning) == beginning, "those that have an end keep it"


@reshards
def test_children_that_have_to_wait_are_refused_with_an_end(server: KinesisServer) -> None:
    stream = server.new_stream(1)
    server.put(stream, rows(range(3)))
    endless = source_of(server, stream)
    splits = initial(endless)
    server.split(stream)
    latest = endless.ended("latest")
    with pytest.raises(UsageError, match="shardId-000000000000 was split or merged in the time"):
        bounded(latest, splits)
    done = endless.add_finished(None, splits)
    assert [each.split_id[-1] for each in bounded(latest, [], done)] == ["1", "2"], "the parent was read"


def test_a_start_with_the_latest_stays_where_it_was_at_the_first_start(plain: KinesisServer) -> None:
    """What comes after the first start, and before anybody reads, is read."""
    stream = plain.new_stream(1)
    source = source_of(plain, stream, start="latest")
    splits = initial(source)
    plain.put(stream, [row(1)])
    with closing(open_reader(source, splits)) as reader:
        assert read(reader, lambda seen, finished: len(seen) == 1) == [{"n": 1}]


def test_packed_records_are_unpacked_and_cut_anywhere(plain: KinesisServer) -> None:
    stream = plain.new_stream(1)
    plain.put(stream, [row(0), ("a", aggregated(rows(range(1, 6)))), row(6)])
    source = source_of(plain, stream, until="latest")
    splits = initial(source)
    for cut in range(8):
        with closing(open_reader(source, splits)) as reader:
            before = read(reader, lambda seen, finished, cut=cut: len(seen) >= cut, records_max=1)
            position = through_json(reader.snapshot())
        assert [each["n"] for each in before] + read_all(source, position) == list(range(7))


def test_what_is_no_row_ends_the_job_or_goes_to_the_dead_letters(plain: KinesisServer) -> None:
    stream = plain.new_stream(1)
    plain.put(stream, [("k", b"nothing"), row(1)])
    strict = source_of(plain, stream, until="latest")
    said = rf"record \d+ of stream '{stream}', shardId-000000000000 can't be decoded.*b'nothing'"
    with pytest.raises(BadRecordError, match=said):
        read_all(strict, initial(strict))
    tolerant = source_of(plain, stream, until="latest", dead_letters=PrintSink())
    with closing(open_reader(tolerant, initial(tolerant))) as reader:
        deadline = time.monotonic() + WAIT_S
        while (fetch := reader.poll(0, 10)) is None:
            assert time.monotonic() < deadline
            threading.Event().wait(0.002)
    (letter,) = fetch.dead_letters.to_pylist()
    assert (letter["topic"], letter["key"], letter["value"]) == (stream, b"k", b"nothing")
    assert fetch.records.to_pylist() == [{"n": 1}]


def test_a_paused_shard_is_left_alone(plain: KinesisServer) -> None:
    stream = plain.new_stream(1)
    plain.put(stream, rows(range(4)))
    source = source_of(plain, stream, until="latest")
    with closing(open_reader(source, initial(source))) as reader:
        found = read(reader, lambda seen, finished: len(seen) == 1, records_max=1)
        reader.pause_splits(["shardId-000000000000"])
        assert reader.poll(0, 10) is None
        reader.resume_splits(["shardId-000000000000"])
        found += read(reader, lambda seen, finished: len(finished) == 1)
    assert [each["n"] for each in found] == [0, 1, 2, 3]


def test_a_stream_that_is_not_there_is_one_sentence(plain: KinesisServer) -> None:
    with pytest.raises(Fatal, match=r"stream 'nothing' is not there.*Look at stream= and region="):
        initial(source_of(plain, "nothing"))


def test_a_server_that_is_away_is_waited_for_until_time_is_up(plain: KinesisServer) -> None:
    stream = plain.new_stream(1)
    splits = initial(source_of(plain, stream))
    away = source_of(plain, stream, endpoint_url="http://127.0.0.1:9", timeout="50 ms")
    with (
        closing(open_reader(away, splits)) as reader,
        pytest.raises(Unavailable, match="no answer from Kinesis"),
    ):
        read(reader, lambda seen, finished: False)


def test_a_stream_that_was_made_anew_is_no_continuation(server: KinesisServer) -> None:
    source = source_of(server, server.new_stream(1))
    (split,) = initial(source)
    other = SplitState(split.split_id, {**split.position, "created_ms": 1})
    with pytest.raises(DataLossError, match="was deleted and made anew since"):
        check_restored(source, [other])
    with pytest.raises(DataLossError, match="the checkpoint is of stream"):
        check_restored(source_of(server, server.new_stream(1)), [split])


# --- Resharding -----------------------------------------------------------------------------------------


@reshards
@pytest.mark.parametrize("seed", range(3))
def test_children_are_read_after_their_parents_wherever_the_job_stops(
    seed: int, server: KinesisServer
) -> None:
    """Splits and merges between records of five keys; after each poll the job may die and go on from a
    checkpoint. Each record comes once, those of a key in their order."""
    chance = random.Random(seed)
    stream = server.new_stream(2)
    source = source_of(server, stream)
    durable: tuple[list[SplitState], Any, int] = (initial(source), None, 0)
    counted: list[Any] = []
    sent = 0
    for round_number in range(8):
        numbers = range(sent, sent + 10)
        server.put_many(stream, [(f"k{n % 5}", json.dumps({"n": n}).encode()) for n in numbers])
        sent += 10
        if round_number % 2:
            server.merge(stream)
        else:
            server.split(stream, chance.randrange(len(server.open_shards(stream))))
        durable = run_for_a_while(source, durable, counted, chance)
    deadline = time.monotonic() + WAIT_S
    while durable[2] < sent:
        assert time.monotonic() < deadline, (durable, len(counted))
        durable = run_for_a_while(source, durable, counted, chance)
    found = [each["n"] for each in counted[: durable[2]]]
    assert sorted(found) == list(range(sent))
    for key in range(5):
        of_key = [n for n in found if n % 5 == key]
        assert of_key == sorted(of_key)


def run_for_a_while(source: KinesisSource, durable: Any, counted: list[Any], chance: Any) -> Any:
    """An attempt: it goes on from what is durable, makes checkpoints as the engine does, and dies."""
    splits, finished, count = durable
    del counted[count:]
    splits = [*splits, *discover(source, splits, finished)]
    check_restored(source, splits)
    done: set[str] = set()
    with closing(open_reader(source, splits)) as reader:
        for _ in range(chance.randrange(5, 60)):
            fetch = reader.poll(0, chance.randrange(1, 4))
            if fetch is None:
                threading.Event().wait(0.002)
                continue
            counted += fetch.records.to_pylist()
            done |= fetch.finished
            if chance.random() < 0.3:
                positions = through_json(reader.snapshot())
                ended = [s for s in positions if s.split_id in done]
                left = [s for s in positions if s.split_id not in done]
                finished = json.loads(json.dumps(source.add_finished(finished, ended)))
                durable = left, finished, len(counted)
                reader.forget_splits(done)
                done = set()
                if found := discover(source, left, finished):
                    reader.add_splits(found)
    return durable


@reshards
def test_a_bounded_read_over_a_resharding_is_refused(server: KinesisServer) -> None:
    stream = server.new_stream(1)
    server.split(stream)
    server.put(stream, [row(1)])
    server.wait_until_all_is_past()
    source = source_of(server, stream, until="latest")
    assert read_all(source, initial(source)) == [1], "the parent has nothing to read"
    server.merge(stream)
    with pytest.raises(UsageError, match="was split or merged in the time that is to be read"):
        initial(source)


@reshards
def test_a_start_with_the_latest_reads_open_shards_and_no_older_ones(server: KinesisServer) -> None:
    stream = server.new_stream(1)
    server.split(stream)
    splits = initial(source_of(server, stream, start="latest"))
    assert [split.split_id for split in splits] == ["shardId-000000000001", "shardId-000000000002"]
    assert discover(source_of(server, stream), splits, None) == []


# --- What was trimmed -----------------------------------------------------------------------------------


@reshards
def test_what_was_trimmed_while_the_job_stood_still_ends_it() -> None:
    """One shard with a record that is gone, one without: neither goes on as if nothing had been."""
    with KinesisServer(reshards=True) as server:
        stream = server.new_stream(1)
        source = source_of(server, stream)
        server.put(stream, rows(range(3)))
        with closing(open_reader(source, initial(source))) as reader:
            read(reader, lambda seen, finished: len(seen) == 1, records_max=1)
            splits = through_json(reader.snapshot())
        check_restored(source, splits)
        server.let_a_day_pass()
        after = splits[0].position["after"]
        said = rf"'{stream}', shardId-000000000000 has to go on behind sequence number {after}, and"
        with pytest.raises(DataLossError, match=said):
            check_restored(source, splits)
        with closing(open_reader(source, splits)) as reader, pytest.raises(DataLossError, match=said):
            read(reader, lambda seen, finished: False)


@reshards
def test_a_shard_whose_last_record_is_there_has_lost_nothing() -> None:
    with KinesisServer(reshards=True) as server:
        stream = server.new_stream(1)
        server.client.increase_stream_retention_period(StreamName=stream, RetentionPeriodHours=72)
        source = source_of(server, stream)
        server.put(stream, rows(range(3)))
        with closing(open_reader(source, initial(source))) as reader:
            read(reader, lambda seen, finished: len(seen) == 1, records_max=1)
            (split,) = through_json(reader.snapshot())
        server.let_a_day_pass()
        check_restored(source, [split])
        long_ago = SplitState(
            split.split_id, {**split.position, "complete_ms": split.position["complete_ms"] - 9 * DAY_MS}
        )
        check_restored(source, [long_ago])
        with closing(open_reader(source, [long_ago])) as reader:
            assert len(read(reader, lambda seen, finished: len(seen) == 2)) == 2


@reshards
def test_a_shard_that_was_never_found_and_is_gone_ends_the_job(server: KinesisServer) -> None:
    source = source_of(server, server.new_stream(1))
    (split,) = initial(source)
    lost = SplitState(split.split_id, {**split.position, "lost_parent": "shardId-000000000009"})
    said = "shardId-000000000009 was to be read before shardId-000000000000"
    with pytest.raises(DataLossError, match=said):
        check_restored(source, [lost])
    with closing(open_reader(source, [lost])) as reader, pytest.raises(DataLossError, match=said):
        reader.poll(0, 1)
