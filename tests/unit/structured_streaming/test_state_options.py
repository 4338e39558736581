"""The options of onceflow-state: what they mean, and what is refused by a sentence."""

from __future__ import annotations

import pytest

from onceflow.runtime.errors import OptionError
from onceflow.structured_streaming.state_options import state_options


def test_what_options_mean() -> None:
    assert state_options({"path": "ck"}).operator is None
    given = state_options({"path": "ck", "Operator": "o", "checkpoint": "7", "key": "ann"})
    assert (given.operator, given.checkpoint, given.keys_of(["user"])) == ("o", 7, ["ann"])
    several = state_options({"path": "ck", "operator": "o", "keys": '["ann", {"user": "bob"}, 5]'})
    assert several.keys_of(["user"]) == ["ann", {"user": "bob"}, 5]
    assert state_options({"path": "ck", "operator": "o"}).keys_of(["user"]) is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, r"needs the folder of a job's checkpoints, or of a savepoint: load\(path\)"),
        ({"path": "ck", "operater": "o"}, r"has no option 'operater' \(did you mean 'operator'\?\); use"),
        ({"path": "ck", "state": "s"}, "option 'state' is of one operator: use option 'operator' too"),
        ({"path": "ck", "checkpoint": "last"}, "option 'checkpoint' is 'last': use the id of a checkpoint"),
        ({"path": "ck", "operator": "o", "keys": "ann"}, "option 'keys' is 'ann': use a JSON array of keys"),
        ({"path": "ck", "operator": "o", "keys": "[]", "key": "a"}, "give one of 'key' and 'keys'"),
    ],
)
def test_what_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        state_options(options)
