"""The user's metrics as Prometheus reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from onceflow.cli.function_metrics import families


class Served(Collector):
    def collect(self):  # type: ignore[no-untyped-def]
        histogram = {"count": 3, "sum": 7.0, "buckets": {"1.0": 1, "+Inf": 3}}
        one = {"lookups": 6, "queued": {"0": 5.0, "1": 6.0}, "took_ms": histogram}
        return families("totals", {"enrich": one, "other": {"lookups": 1}})


def test_operators_share_a_family_and_gauges_are_by_subtask() -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Served())
    lines = generate_latest(registry).decode().splitlines()
    prefix = "onceflow_taskmanager_job_task_operator_"
    assert {line.removeprefix(prefix) for line in lines if not line.startswith("#")} == {
        'lookups{job_name="totals",operator_name="enrich"} 6.0',
        'lookups{job_name="totals",operator_name="other"} 1.0',
        'queued{job_name="totals",operator_name="enrich",subtask_index="0"} 5.0',
        'queued{job_name="totals",operator_name="enrich",subtask_index="1"} 6.0',
        'took_ms_bucket{job_name="totals",le="1.0",operator_name="enrich"} 1.0',
        'took_ms_bucket{job_name="totals",le="+Inf",operator_name="enrich"} 3.0',
        'took_ms_count{job_name="totals",operator_name="enrich"} 3.0',
        'took_ms_sum{job_name="totals",operator_name="enrich"} 7.0',
    }
    assert sum(line.startswith(f"# TYPE {prefix}lookups") for line in lines) == 1
