"""Where slots listen. What else an executor does is in the integration tests."""

from __future__ import annotations

import pytest

from onceflow.runtime.hosts.spark.executor import host_of_slot


@pytest.mark.parametrize("spark_host", ["192.0.2.7", "worker-3.example"])
def test_a_slot_listens_where_others_reach_it_and_on_loopback_where_all_are_on_one_machine(
    spark_host: str,
) -> None:
    assert host_of_slot("127.0.0.1", spark_host) == "127.0.0.1"
    assert host_of_slot("::1", spark_host) == "::1"
    assert host_of_slot("192.0.2.1", spark_host) == spark_host
    assert host_of_slot("driver.example", spark_host) == spark_host  # as Spark has it in containers
