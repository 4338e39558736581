"""What a checkpoint says of prepared transactions."""

from __future__ import annotations

import json

import pytest

from onceflow.connectors.kafka.client import LedgerKey, ProducerIdentity
from onceflow.connectors.kafka.transactions.held import StagedOutput
from onceflow.connectors.kafka.transactions.prepared_promise import PreparedPromise, PreparedTransaction
from onceflow.connectors.kafka.transactions.promise import Promise
from onceflow.runtime.contracts import Committable
from onceflow.runtime.errors import CorruptCheckpointError

PROMISE = PreparedPromise(
    LedgerKey("job.out.beef.0", "ledger"),
    3,
    [PreparedTransaction(7, "job.out.beef.0.3.1", ProducerIdentity(1 << 40, 2), 1_000)],
)


def committable(payload: object) -> Committable:
    return Committable("out", "0", 7, json.loads(json.dumps(payload)))


def test_a_promise_comes_back_through_json() -> None:
    kept = committable(PROMISE.to_json())
    assert PreparedPromise.is_in(kept)
    assert PreparedPromise.of(kept) == PROMISE


def test_it_is_told_from_output_that_is_staged() -> None:
    staged = Promise(LedgerKey("job.out.beef.0", "ledger"), 6, [StagedOutput(7, "path", 1, 2, 3)])
    assert not PreparedPromise.is_in(committable(staged.to_json()))


@pytest.mark.parametrize("missing", ["transactional_id", "ledger_topic", "attempt"])
def test_what_cannot_be_read_is_corrupt(missing: str) -> None:
    payload = {name: value for name, value in dict(PROMISE.to_json()).items() if name != missing}
    with pytest.raises(CorruptCheckpointError, match=f"no readable transactions of sink 'out'.*{missing}"):
        PreparedPromise.of(committable(payload))
