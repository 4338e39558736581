"""Where the values of parameters come from, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceflow import Secret, secret
from onceflow.runtime.errors import OptionError
from onceflow.runtime.functions.resolve import resolve


def test_given_comes_before_the_environment_and_that_before_the_default() -> None:
    declared = {"a": 1, "b": 1, "c": 1, "two-words": "x"}
    environ = {"ONCEFLOW_PARAM_A": "2", "ONCEFLOW_PARAM_B": "2", "ONCEFLOW_PARAM_TWO_WORDS": "y"}
    params = resolve(declared, {"a": "3"}, environ)
    assert {name: params[name] for name in params} == {"a": 3, "b": 2, "c": 1, "two-words": "y"}


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        (1, "-7", -7),
        (1.0, "0.5", 0.5),
        (1.0, 2, 2.0),
        (False, "True", True),
        (str, "x", "x"),
        (bool, True, True),
    ],
)
def test_a_text_becomes_what_the_default_is(default: Any, text: Any, value: Any) -> None:
    found = resolve({"p": default}, {"p": text}, {})["p"]
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("default", "given"), [(1, "x"), (1, True), (True, "yes"), (True, 1), ("x", 3), (1, 1.5)]
)
def test_what_is_of_another_type_is_refused(default: Any, given: Any) -> None:
    with pytest.raises(OptionError, match=r"parameter 'p' is .*: expected"):
        resolve({"p": default}, {"p": given}, {})


def test_what_is_missing_or_unknown_is_refused() -> None:
    with pytest.raises(OptionError, match="parameter 'url' is missing: give --param url="):
        resolve({"url": str}, {}, {})
    with pytest.raises(OptionError, match=r"'ulr' is not one of the job's \(did you mean 'url'"):
        resolve({"url": "x"}, {"ulr": "y"}, {})
    assert resolve({}, {"any": "y"}, {})["any"] == "y"


def test_a_secret_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("of-file\n")
    declared = {"a": secret(env="TOKEN"), "b": secret(file=str(file)), "c": secret(), "d": secret()}
    environ = {"TOKEN": "of-env", "ONCEFLOW_PARAM_C": "of-param"}
    params = resolve(declared, {"d": "given"}, environ)
    assert all(isinstance(params[name], Secret) for name in params)
    assert [params[name].reveal() for name in "abcd"] == ["of-env", "of-file", "of-param", "given"]


def test_a_secret_that_is_missing_is_named_without_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(
        OptionError, match="secret 'token' is missing or empty: set TOKEN or ONCEFLOW_PARAM_TOK"
    ):
        resolve({"token": secret(env="TOKEN")}, {}, {"TOKEN": ""})
    with pytest.raises(OptionError, match=r"secret 'token' can't be read from .*: No such file"):
        resolve({"token": secret(file=str(tmp_path / "none"))}, {}, {})
