"""ShardPosition: through JSON, and when what follows may be gone."""

from __future__ import annotations

import json

from onceflow.connectors.kinesis.position import ShardPosition, trimmed
from onceflow.runtime.contracts import SplitState

WHOLE = ShardPosition(
    "shardId-000000000001", "s", 7, ("shardId-000000000000",), "0", "9", 1, 2, "495", 3, 4, 5
)


def test_it_is_json() -> None:
    state = WHOLE.state()
    assert ShardPosition.of(SplitState(state.split_id, json.loads(json.dumps(dict(state.position))))) == WHOLE


def test_what_was_read_up_to_a_time_may_have_lost_what_is_trimmed_behind_it() -> None:
    assert not WHOLE.may_have_lost(4)
    assert WHOLE.may_have_lost(5)
    unread = ShardPosition("shardId-000000000001", "s", 7)
    assert not unread.may_have_lost(10**15), "what was never there for the job is no loss"


def test_skipping_forgets_the_position_and_keeps_the_count() -> None:
    skipped = WHOLE.skipped_to(99)
    assert (skipped.after, skipped.taken, skipped.from_ms, skipped.complete_ms) == (None, 0, 99, 99)
    assert skipped.count == WHOLE.count


def test_the_error_names_the_shard_and_both_sequence_numbers() -> None:
    said = str(trimmed(WHOLE, "600", 24.0))
    assert "shardId-000000000001 has to go on behind sequence number 495" in said
    assert "the first record there is 600" in said
    assert "keeps records for 24 h" in said
