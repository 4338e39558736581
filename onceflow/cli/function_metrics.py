"""The user's own metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

PREFIX = "onceflow_taskmanager_job_task_operator_"
_LABELS = ("job_name", "operator_name")


def families(job: str, metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """A family for each name and kind, whatever operators have it."""
    found: dict[tuple[str, str], Metric] = {}
    for uid, of_uid in metrics.items():
        for name, value in of_uid.items():
            if isinstance(value, int):
                _gauge(found, name, _LABELS, "counter").add_metric((job, uid), value)
            elif "buckets" in value:
                key = name, "histogram"
                family = found.setdefault(
                    key, HistogramMetricFamily(PREFIX + name, "The job's own.", labels=_LABELS)
                )
                assert isinstance(family, HistogramMetricFamily)
                family.add_metric((job, uid), list(value["buckets"].items()), value["sum"])
            else:
                for subtask, each in value.items():
                    gauge = _gauge(found, name, (*_LABELS, "subtask_index"), "gauge")
                    gauge.add_metric((job, uid, subtask), each)
    yield from found.values()


def _gauge(
    found: dict[tuple[str, str], Metric], name: str, labels: tuple[str, ...], kind: str
) -> GaugeMetricFamily:
    family = found.setdefault((name, kind), GaugeMetricFamily(PREFIX + name, "The job's own.", labels=labels))
    assert isinstance(family, GaugeMetricFamily)
    return family
