"""The options of onceflow-state: what they mean, and what is refused by a sentence."""

from __future__ import annotations

import pytest

from onceflow.runtime.errors import OptionError
from onceflow.structured_streaming.state_options import state_options, state_to_write


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
        ({"path": "ck", "all_rows": "yes"}, "option 'all_rows' is 'yes': use true or false"),
        (
            {"path": "ck", "all_rows": "true", "operator": "o"},
            "leave 'operator' out, and filter by it",
        ),
        ({"path": "ck", "operator": "o", "keys": "[]", "key": "a"}, "give one of 'key' and 'keys'"),
    ],
)
def test_what_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        state_options(options)


WRITE = {"path": "sp", "operator": "o", "state": "s", "key_columns": "user, day"}


def test_the_options_of_a_write() -> None:
    given = state_to_write({**WRITE, "max_parallelism": "16"})
    assert (given.key_columns, given.kind, given.base, given.max_parallelism) == (
        ["user", "day"],
        "value",
        None,
        16,
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"path": "sp"},
            "writing onceflow-state needs 'operator': use all of path, operator, state, key",
        ),
        ({**WRITE, "kid": "map"}, r"has no option 'kid' \(did you mean 'kind'\?\); use"),
        ({**WRITE, "max_parallelism": "0"}, "option 'max_parallelism' is '0': use a number"),
    ],
)
def test_what_is_refused_of_a_write(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        state_to_write(options)
