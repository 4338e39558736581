"""What a checkpoint says of a sink's output is read again as it was written, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceflow.connectors.kafka.client import LedgerKey
from onceflow.connectors.kafka.transactions.held import StagedOutput
from onceflow.connectors.kafka.transactions.promise import Promise
from onceflow.runtime.contracts import Committable
from onceflow.runtime.errors import CorruptCheckpointError

PROMISE = Promise(LedgerKey("job.l.out.0", "onceflow-ledger"), 4, [StagedOutput(5, "out/5", 100, 2_000, 77)])


def committable(payload: Any) -> Committable:
    return Committable("out", "0", 5, payload, ())


def test_a_promise_survives_json() -> None:
    assert Promise.of(committable(json.loads(json.dumps(PROMISE.to_json())))) == PROMISE


@pytest.mark.parametrize("missing", ["transactional_id", "ledger_topic", "ledger", "outputs"])
def test_a_promise_that_lacks_something_is_refused_with_its_sink(missing: str) -> None:
    payload: Any = PROMISE.to_json()
    del payload[missing]
    with pytest.raises(CorruptCheckpointError, match=r"checkpoint 5 holds no readable output of sink 'out'"):
        Promise.of(committable(payload))


def test_a_file_that_is_described_otherwise_is_refused() -> None:
    payload: Any = PROMISE.to_json()
    payload["outputs"][0]["colour"] = "red"
    with pytest.raises(CorruptCheckpointError, match="colour"):
        Promise.of(committable(payload))
