"""Which of Spark's settings ask for encryption between processes."""

from __future__ import annotations

import pytest

from onceflow.runtime.hosts.spark.encryption import SETTINGS, encryption_asked_by


@pytest.mark.parametrize("name", SETTINGS)
def test_each_of_sparks_ways_asks_for_it(name: str) -> None:
    assert encryption_asked_by({name: "true"}) == name
    assert encryption_asked_by({name: " TRUE "}) == name
    assert encryption_asked_by({name: "false"}) is None


def test_settings_of_files_and_of_web_pages_do_not() -> None:
    others = {
        "spark.io.encryption.enabled": "true",
        "spark.ssl.enabled": "true",
        "spark.authenticate": "true",
    }
    assert encryption_asked_by(others) is None
    assert encryption_asked_by({}) is None
