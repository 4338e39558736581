"""The requests and answers of a direct producer, against kafka-python's own encoding of the same protocol."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

from onceflow.connectors.kafka.client import ProducerIdentity
from onceflow.connectors.kafka.protocol.transaction_messages import (
    Node,
    PartitionResult,
    add_partitions_answer,
    add_partitions_request,
    end_answer,
    end_request,
    find_coordinator_answer,
    find_coordinator_request,
    init_answer,
    init_request,
    produce_answer,
    produce_request,
)
from onceflow.connectors.kafka.protocol.wire import ProtocolError

names = st.text(min_size=1, max_size=200)
numbers = st.integers(0, (1 << 31) - 1)
identities = st.builds(ProducerIdentity, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 15) - 1))
errors = st.sampled_from([0, 6, 47, 51])
ANSWER_HEADER = b"\0\0\0\5\0"  # correlation id 5, of a flexible answer


@given(st.dictionaries(names, st.dictionaries(numbers, st.binary(max_size=300)), max_size=4), names)
def test_a_produce_request_says_what_is_written(topics: dict[str, dict[int, bytes]], id_: str) -> None:
    batches = {
        topic: [(n, (batch[:2], memoryview(batch)[2:])) for n, batch in partitions.items()]
        for topic, partitions in topics.items()
    }
    pieces = produce_request(7, "me", transactional_id=id_, timeout_ms=9_000, batches=batches)
    read: Any = ProduceRequest.decode(b"".join(pieces), version=9, header=True, framed=True)
    assert (read.header.correlation_id, read.header.client_id) == (7, "me")
    assert (read.transactional_id, read.acks, read.timeout_ms) == (id_, -1, 9_000)
    found = {
        topic.name: {each.index: bytes(each.records or b"") for each in topic.partition_data}
        for topic in read.topic_data
    }
    assert found == topics


def produced(results: list[PartitionResult], throttle_ms: int = 0) -> bytes:
    """An answer as a broker would write it."""
    kinds = ProduceResponse[9].TopicProduceResponse
    partition = kinds.PartitionProduceResponse
    made: Any = ProduceResponse[9](
        responses=[
            kinds(
                name=result.topic,
                partition_responses=[
                    partition(
                        index=result.partition,
                        error_code=result.error,
                        base_offset=1 << 40,
                        log_append_time_ms=-1,
                        log_start_offset=0,
                        record_errors=[
                            partition.BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message=None)
                        ],
                        error_message=result.message or None,
                    )
                ],
            )
            for result in results
        ],
        throttle_time_ms=throttle_ms,
    )
    encoded: bytes = made.encode(version=9)
    return ANSWER_HEADER + encoded


results = st.lists(st.builds(PartitionResult, names, numbers, errors, st.text(max_size=30)), max_size=5)


@given(results, st.integers(0, 1 << 30))
def test_a_produce_answer_is_read_as_it_was_written(expected: list[PartitionResult], mute_ms: int) -> None:
    answer = produce_answer(produced(expected, mute_ms))
    found = answer.results
    assert answer.throttle_ms == mute_ms
    assert [(each.topic, each.partition, each.error) for each in found] == [
        (each.topic, each.partition, each.error) for each in expected
    ]
    for each, other in zip(found, expected, strict=True):
        assert other.message in each.message
        assert "record 3: " in each.message


@given(st.data())
def test_an_answer_that_is_cut_off_is_said_to_be(data: st.DataObject) -> None:
    whole = produced([PartitionResult("t", 0, 0)])
    cut = data.draw(st.integers(0, len(whole) - 2))  # behind it there are no tags, which nobody reads
    with pytest.raises(ProtocolError):
        produce_answer(whole[:cut])


@given(st.dictionaries(names, st.lists(numbers, max_size=5), max_size=4), identities)
def test_partitions_are_added(partitions: dict[str, list[int]], identity: ProducerIdentity) -> None:
    request = add_partitions_request(3, "me", "id", identity, partitions)
    read: Any = AddPartitionsToTxnRequest.decode(request, version=3, header=True, framed=True)
    assert (read.header.correlation_id, read.v3_and_below_transactional_id) == (3, "id")
    assert (read.v3_and_below_producer_id, read.v3_and_below_producer_epoch) == (
        identity.producer_id,
        identity.epoch,
    )
    assert {each.name: list(each.partitions) for each in read.v3_and_below_topics} == partitions


@given(results, st.integers(0, 1 << 30))
def test_what_was_added_is_read(expected: list[PartitionResult], mute_ms: int) -> None:
    topics = AddPartitionsToTxnResponse[3].AddPartitionsToTxnTopicResult
    made: Any = AddPartitionsToTxnResponse[3](
        throttle_time_ms=mute_ms,
        results_by_topic_v3_and_below=[
            topics(
                name=each.topic,
                results_by_partition=[
                    topics.AddPartitionsToTxnPartitionResult(
                        partition_index=each.partition, partition_error_code=each.error
                    )
                ],
            )
            for each in expected
        ],
    )
    found = add_partitions_answer(ANSWER_HEADER + made.encode(version=3))
    assert found.results == [PartitionResult(each.topic, each.partition, each.error) for each in expected]
    assert found.throttle_ms == mute_ms


@given(identities, st.booleans())
def test_a_transaction_is_ended_as_asked(identity: ProducerIdentity, is_commit: bool) -> None:
    request = end_request(3, "me", "id", identity, is_commit)
    read: Any = EndTxnRequest.decode(request, version=3, header=True, framed=True)
    assert (read.transactional_id, read.producer_id, read.producer_epoch, read.committed) == (
        "id",
        identity.producer_id,
        identity.epoch,
        is_commit,
    )


@given(errors, numbers)
def test_what_became_of_the_end_is_read(error: int, mute_ms: int) -> None:
    made: Any = EndTxnResponse[3](throttle_time_ms=mute_ms, error_code=error)
    assert end_answer(ANSWER_HEADER + made.encode(version=3)) == error


@given(names, numbers, errors, identities)
def test_a_new_epoch_is_asked_for_and_read(
    name: str, timeout_ms: int, error: int, identity: ProducerIdentity
) -> None:
    request = init_request(3, "me", name, timeout_ms)
    read: Any = InitProducerIdRequest.decode(request, version=2, header=True, framed=True)
    assert (read.transactional_id, read.transaction_timeout_ms) == (name, timeout_ms)
    made: Any = InitProducerIdResponse[2](
        throttle_time_ms=9,
        error_code=error,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
    )
    assert init_answer(ANSWER_HEADER + made.encode(version=2)) == (error, identity)


def test_the_coordinator_is_asked_for_and_found() -> None:
    read: Any = FindCoordinatorRequest.decode(
        find_coordinator_request(3, "me", "id"), version=3, header=True, framed=True
    )
    assert (read.header.correlation_id, read.key, read.key_type) == (3, "id", 1)
    made: Any = FindCoordinatorResponse[3](
        throttle_time_ms=0, error_code=15, error_message=None, node_id=2, host="broker", port=9092
    )
    answer = ANSWER_HEADER + made.encode(version=3)
    assert find_coordinator_answer(answer) == (15, Node("broker", 9092))
