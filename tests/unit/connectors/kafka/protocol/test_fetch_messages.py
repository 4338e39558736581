"""The requests and answers of a direct fetch, against kafka-python's own encoding of the same protocol."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse

from onceflow.connectors.kafka.protocol.fetch_messages import (
    Aborted,
    EpochEnd,
    FetchPartition,
    fetch_answer,
    fetch_request,
)
from onceflow.connectors.kafka.protocol.wire import ProtocolError

ids = st.binary(min_size=16, max_size=16).filter(any)  # kafka-python takes zeros for none
offsets = st.integers(0, (1 << 63) - 1)
epochs = st.integers(-1, (1 << 31) - 1)


@given(
    st.lists(st.builds(FetchPartition, ids, st.integers(0, 1 << 20), offsets, epochs), max_size=300),
    st.sampled_from(["read_committed", "read_uncommitted"]),
    st.text(max_size=20),
)
def test_a_request_says_what_was_asked(wanted: list[FetchPartition], isolation: Any, client: str) -> None:
    request = fetch_request(
        7, client, isolation, wanted, wait_ms_max=50, bytes_max=9_000, partition_bytes_max=77
    )
    read: Any = FetchRequest.decode(request, version=13, header=True, framed=True)
    assert (read.header.correlation_id, read.header.client_id) == (7, client)
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes) == (50, 1, 9_000)
    assert read.isolation_level == (isolation == "read_committed")
    assert [
        FetchPartition(
            topic.topic_id.bytes, partition.partition, partition.fetch_offset, partition.last_fetched_epoch
        )
        for topic in read.topics
        for partition in topic.partitions
    ] == wanted
    assert {p.current_leader_epoch for topic in read.topics for p in topic.partitions} <= {-1}
    assert {p.partition_max_bytes for topic in read.topics for p in topic.partitions} <= {77}


def answer(topics: list[tuple[bytes, list[dict[str, Any]]]], error: int = 0) -> bytes:
    """An answer as a broker would write it, correlation id 5."""
    made: Any = FetchResponse[13](
        throttle_time_ms=3,
        error_code=error,
        session_id=0,
        responses=[
            FetchResponse[13].FetchableTopicResponse(
                topic_id=uuid.UUID(bytes=topic),
                partitions=[
                    FetchResponse[13].FetchableTopicResponse.PartitionData(
                        **{
                            **partition,
                            "aborted_transactions": [
                                FetchResponse[13].FetchableTopicResponse.PartitionData.AbortedTransaction(
                                    producer_id=each.producer_id, first_offset=each.first_offset
                                )
                                for each in partition["aborted_transactions"]
                            ],
                            "diverging_epoch": FetchResponse[
                                13
                            ].FetchableTopicResponse.PartitionData.EpochEndOffset(
                                epoch=partition["diverging_epoch"].epoch,
                                end_offset=partition["diverging_epoch"].end_offset,
                            ),
                        }
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in topics
        ],
    )
    encoded: bytes = made.encode(version=13)
    return b"\0\0\0\5\0" + encoded  # the header of flexible answers


NO_END = EpochEnd(-1, -1)  # a default, which brokers do not write and kafka-python does

partitions = st.fixed_dictionaries(
    {
        "partition_index": st.integers(0, 1 << 20),
        "error_code": st.sampled_from([0, 6, 100]),
        "high_watermark": offsets,
        "last_stable_offset": offsets,
        "log_start_offset": offsets,
        "aborted_transactions": st.lists(st.builds(Aborted, offsets, offsets), max_size=3),
        "preferred_read_replica": st.just(-1),
        "records": st.binary(max_size=300),
        "diverging_epoch": st.just(NO_END) | st.builds(EpochEnd, st.integers(0, 1 << 30), offsets),
    }
)


@given(st.lists(st.tuples(ids, st.lists(partitions, max_size=3)), max_size=4))
def test_an_answer_is_read_as_it_was_written(topics: list[tuple[bytes, list[dict[str, Any]]]]) -> None:
    frame = memoryview(answer(topics))
    read = fetch_answer(frame)
    assert (read.correlation_id, read.throttle_ms) == (5, 3)
    found = read.partitions
    expected = [(topic, partition) for topic, group in topics for partition in group]
    assert len(found) == len(expected)
    for each, (topic, partition) in zip(found, expected, strict=True):
        assert (each.topic_id, each.partition) == (topic, partition["partition_index"])
        assert each.error == partition["error_code"]
        assert each.high_watermark == partition["high_watermark"]
        assert each.last_stable_offset == partition["last_stable_offset"]
        assert each.diverging == (
            None if partition["diverging_epoch"] == NO_END else partition["diverging_epoch"]
        )
        assert list(each.aborted) == partition["aborted_transactions"]
        assert bytes(frame[each.start : each.end]) == partition["records"]


@given(st.data())
def test_an_answer_that_is_cut_off_is_said_to_be(data: st.DataObject) -> None:
    whole = answer([(b"t" * 16, [data.draw(partitions)])])
    cut = data.draw(st.integers(0, len(whole) - 2))  # the last byte says that no tags follow
    with pytest.raises(ProtocolError):
        fetch_answer(memoryview(whole[:cut]))


def test_an_error_of_the_whole_answer_is_raised() -> None:
    with pytest.raises(ProtocolError, match="error 70"):
        fetch_answer(memoryview(answer([], error=70)))
