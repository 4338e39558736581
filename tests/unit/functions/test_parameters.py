"""Parameters as functions read them; a secret is shown by nothing."""

from __future__ import annotations

import pickle

import pytest

from onceflow import Secret, secret
from onceflow.runtime.errors import GraphError, UsageError
from onceflow.runtime.functions.parameters import Parameters, check_declared, shown


def test_a_secret_shows_itself_to_whom_it_is_revealed_only() -> None:
    token = Secret("hunter2")
    assert token.reveal() == "hunter2"
    told = f"{token} {token!r} {Parameters({'token': token})!r} {[token]}"
    assert "hunter2" not in told
    assert pickle.loads(pickle.dumps(token)).reveal() == "hunter2"


def test_secrets_are_taken_out_of_a_text_the_longest_first() -> None:
    params = Parameters({"a": Secret("key"), "b": Secret("key-2"), "c": "plain"})
    assert params.redact("key-2, key and plain") == "***, *** and plain"
    assert pickle.loads(pickle.dumps(params)).redact("key") == "***"


def test_a_parameter_that_is_not_there_is_named() -> None:
    params = Parameters({"url": "http://x", "retries": 3})
    assert (params["retries"], params.get("no"), params.get("no", 1), "url" in params) == (3, None, 1, True)
    assert (list(params), len(params)) == (["url", "retries"], 2)
    with pytest.raises(UsageError, match=r"no parameter 'ulr' \(did you mean 'url'\?\); there are: url, re"):
        params["ulr"]


def test_what_can_be_declared() -> None:
    declared = check_declared({"url": "x", "n": 3, "rate": 0.5, "dry": False, "need": str, "t": secret()})
    assert [shown(each) for each in declared.values()] == [
        "str = 'x'",
        "int = 3",
        "float = 0.5",
        "bool = False",
        "str",
        "secret",
    ]
    with pytest.raises(GraphError, match=r"parameter 'n' is \[1\]: give a text"):
        check_declared({"n": [1]})
    with pytest.raises(GraphError, match="parameter 'a b': use letters"):
        check_declared({"a b": 1})
    with pytest.raises(GraphError, match="not both"):
        secret(env="A", file="b")
