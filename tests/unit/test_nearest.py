"""The name that was meant, at the end of a sentence."""

from __future__ import annotations

from onceflow.runtime.nearest import nearest


def test_nearest() -> None:
    assert nearest("amout", ["user", "amount"]) == " (did you mean 'amount'?)"
    assert nearest("zzz", ["user", "amount"]) == ""
