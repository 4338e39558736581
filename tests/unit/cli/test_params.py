"""--param and --params-file."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow import secret
from onceflow.cli.params import given_params
from onceflow.runtime.errors import OptionError


def test_the_command_line_comes_before_the_file(tmp_path: Path) -> None:
    toml, json = tmp_path / "p.toml", tmp_path / "p.json"
    toml.write_text('url = "http://file"\nretries = 3\n')
    json.write_text('{"dry": true}')
    assert given_params(["url=a=b"], toml, {}) == {"url": "a=b", "retries": 3}
    assert given_params([], json, {}) == {"dry": True}
    assert given_params(["x="], None, {}) == {"x": ""}


def test_a_secret_on_the_command_line_is_refused_without_being_said() -> None:
    with pytest.raises(OptionError, match=r"--param token: it is a secret.*ONCEFLOW_PARAM_TOKEN") as error:
        given_params(["token=hunter2"], None, {"token": secret()})
    assert "hunter2" not in str(error.value)


def test_what_is_wrong_is_said_and_nothing_of_the_files_content(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--param 'url': write NAME=VALUE"):
        given_params(["url"], None, {})
    with pytest.raises(OptionError, match="No such file"):
        given_params([], tmp_path / "none.toml", {})
    for name, text in (("p.toml", "token = hunter2"), ("p.json", "[hunter2"), ("q.json", '["hunter2"]')):
        (tmp_path / name).write_text(text)
        with pytest.raises(OptionError, match=f"--params-file .*{name}") as error:
            given_params([], tmp_path / name, {})
        assert "hunter2" not in str(error.value)
