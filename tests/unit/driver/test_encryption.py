"""When a run encrypts, and what it says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from onceflow.runtime.driver.encryption import IN_THE_CLEAR, new_credentials
from onceflow.runtime.hosts.local import LocalLauncher
from onceflow.runtime.report import JobProgress


@dataclass
class Told:
    """Reporter that keeps what it is told."""

    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        self.events.append((name, fields))

    def progress(self, progress: JobProgress) -> None:
        pass

    def close(self) -> None:
        pass


class Host(LocalLauncher):
    """A host at this address, with a setting that asks for encryption or none."""

    def __init__(self, driver_host: str, asked_by: str | None = None) -> None:
        super().__init__()
        self._driver_host = driver_host
        self._asked_by = asked_by

    @property
    def driver_host(self) -> str:
        return self._driver_host

    @property
    def encryption_asked_by(self) -> str | None:
        return self._asked_by


def test_without_a_wish_there_is_a_secret_and_nothing_is_said() -> None:
    told = Told()
    made = new_credentials(False, Host("192.0.2.7"), told)
    assert made.tls is None
    assert len(made.secret) == 32
    assert not told.events
    assert new_credentials(False, Host("192.0.2.7"), told).secret != made.secret


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_tls_on_one_machine_makes_a_key_for_each_run(host: str) -> None:
    told = Told()
    first, second = (new_credentials(True, Host(host), told) for _ in range(2))
    assert first.tls is not None
    assert second.tls is not None
    assert first.tls.key != second.tls.key
    assert told.events[:1] == [("encrypted", {"protocol": "TLS 1.3", "asked_by": "--tls"})]
    assert {name for name, _ in told.events} == {"encrypted"}


def test_tls_on_a_cluster_whose_own_traffic_is_in_the_clear_is_warned_of() -> None:
    told = Told()
    assert new_credentials(True, Host("driver.example"), told).tls is not None
    assert told.events[1:] == [("warning", {"reason": IN_THE_CLEAR})]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_host_that_encrypts_its_own_traffic_has_ours_encrypted(wanted: bool) -> None:
    told = Told()
    assert new_credentials(wanted, Host("192.0.2.7", "spark.ssl.rpc.enabled"), told).tls is not None
    assert told.events == [("encrypted", {"protocol": "TLS 1.3", "asked_by": "spark.ssl.rpc.enabled"})]
