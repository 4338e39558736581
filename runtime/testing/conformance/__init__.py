"""The suites that every CheckpointStore, Source, Sink, keyed operator and KeyedTable must pass.

Each check is a function of the thing under test and fails by an assertion, so any test runner will do:

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
    def test_store(check, tmp_path):
        check(LocalStore(str(tmp_path)))
"""

from __future__ import annotations

from onceflow.runtime.testing.conformance.acknowledging import ACKNOWLEDGING_CHECKS, QueueUnderTest
from onceflow.runtime.testing.conformance.committers import COMMITTER_CHECKS, CommittingSinkUnderTest
from onceflow.runtime.testing.conformance.operators import OPERATOR_CHECKS, OperatorUnderTest
from onceflow.runtime.testing.conformance.pausing import PAUSING_CHECKS
from onceflow.runtime.testing.conformance.pruning import PRUNING_CHECKS
from onceflow.runtime.testing.conformance.sinks import SINK_CHECKS, SinkUnderTest
from onceflow.runtime.testing.conformance.sources import SOURCE_CHECKS
from onceflow.runtime.testing.conformance.stores import STORE_CHECKS
from onceflow.runtime.testing.conformance.tables import TABLE_CHECKS, TableUnderTest
from onceflow.runtime.testing.conformance.waking import WAKING_CHECKS, WakingSourceUnderTest

__all__ = [
    "ACKNOWLEDGING_CHECKS",
    "COMMITTER_CHECKS",
    "OPERATOR_CHECKS",
    "PAUSING_CHECKS",
    "PRUNING_CHECKS",
    "SINK_CHECKS",
    "SOURCE_CHECKS",
    "STORE_CHECKS",
    "TABLE_CHECKS",
    "WAKING_CHECKS",
    "CommittingSinkUnderTest",
    "OperatorUnderTest",
    "QueueUnderTest",
    "SinkUnderTest",
    "TableUnderTest",
    "WakingSourceUnderTest",
]
