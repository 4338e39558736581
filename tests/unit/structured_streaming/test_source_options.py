"""Options of the source: names, forms, and what is refused with which words."""

from __future__ import annotations

import pytest

from onceflow.connectors.kafka.split import Subscription
from onceflow.runtime.errors import OptionError
from onceflow.structured_streaming.source_options import AtPlaces, AtTimes, Door, source_options

NEEDED = {"bootstrap_servers": "b:1", "subscribe": "events"}


def refusal(door: Door = "readStream", **options: str) -> str:
    with pytest.raises(OptionError) as error:
        source_options({**NEEDED, **options}, door)
    return str(error.value)


def test_our_names_sparks_names_and_any_case_are_the_same() -> None:
    ours = {"bootstrap_servers": "b:1", "topics": "a, b", "starting_offsets": "earliest"}
    spark = {"kafka.bootstrap.servers": "b:1", "SUBSCRIBE": "a, b", "startingoffsets": "earliest"}
    one, other = source_options(ours, "readStream"), source_options(spark, "readStream")
    assert one.subscription == other.subscription == Subscription(("a", "b"))
    assert one.start == other.start == "earliest"
    assert "say different things" in refusal(topics="others")


def test_a_wrong_option_is_refused_with_the_nearest() -> None:
    assert "did you mean 'maxOffsetsPerTrigger'" in refusal(maxOffsetPerTrigger="5")
    # Spark hands names on in small letters.
    assert "did you mean 'failOnDataLoss'" in refusal(failondatalos="false")
    assert "did you mean 'startingOffsets'" in refusal(startingoffset="earliest")
    assert "endingOffsets" in refusal(endingOffsets="latest")
    assert "maxOffsetsPerTrigger" in refusal("read", maxOffsetsPerTrigger="5")


def test_kafka_settings_pass_through_and_isolation_is_understood() -> None:
    given = {**NEEDED, "kafka.security.protocol": "SSL", "kafka.isolation.level": "read_uncommitted"}
    options = source_options(given, "readStream")
    assert options.kafka.librdkafka == {"security.protocol": "SSL"}
    assert options.isolation == "read_uncommitted"
    assert source_options(NEEDED, "readStream").isolation == "read_committed"
    assert "isolation='dirty'" in refusal(isolation="dirty")
    assert "group.id" in refusal(**{"kafka.group.id": "mine"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger='many' is not a whole number"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0' must be at least 1"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss='perhaps'"),
        ({"startingOffsets": "begin"}, 'or "earliest" or "latest"'),
        ({"startingOffsets": '{"events":[0]}'}, "startingOffsets has no offsets for topic 'events'"),
        ({"startingOffsets": '{"events":{"0":-3}}'}, "startingOffsets can't have '0': -3"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "say different things"),
        ({"startingOffsetsByTimestamp": '{"events":{"0":-1}}'}, "can't have '0': -1"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, 'write "error" or "latest"'),
        ({"subscribePattern": "e.*"}, "got subscribe and subscribePattern"),
        ({"broker_timeout": "soon"}, "broker_timeout='soon' is not a duration"),
    ],
)
def test_a_malformed_value_is_refused_by_name(options: dict[str, str], said: str) -> None:
    assert said in refusal(**options)


def test_what_to_read_has_to_be_said_once() -> None:
    for options, said in [
        ({}, "none is there"),
        ({"subscribePattern": "a["}, "is not a regular expression"),
        ({"assign": '{"a":"0"}'}, "names no partitions"),
        ({"assign": "a"}, "is not a JSON object"),
        ({"subscribe": " , "}, "names no topic"),
    ]:
        with pytest.raises(OptionError, match=said):
            source_options({"bootstrap_servers": "b:1", **options}, "readStream")


def test_positions_are_understood() -> None:
    def start(door: Door = "readStream", **options: str) -> object:
        return source_options({**NEEDED, **options}, door).start

    assert start() == "latest"
    assert start("read") == "earliest"
    assert start(startingOffsets=' {"events":{"0":5,"1":-1,"2":-2}}') == AtPlaces(
        {("events", 0): 5, ("events", 1): -1, ("events", 2): -2}
    )
    assert start(startingTimestamp="17") == AtTimes(17, False)
    assert start(startingOffsetsByTimestamp='{"events":{"0":17}}') == AtTimes({("events", 0): 17}, False)
    end = source_options({**NEEDED, "endingTimestamp": "17"}, "read").end
    assert end == AtTimes(17, True)
    assert 'endingOffsets="earliest"' in refusal("read", endingOffsets="earliest")
    assert "can't have '0': -2" in refusal("read", endingOffsets='{"events":{"0":-2}}')
