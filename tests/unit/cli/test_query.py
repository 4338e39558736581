"""`onceflow query`: the same answer from a folder and from a server, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from onceflow.cli.query import TOKEN, app
from onceflow.runtime.errors import Retryable, UsageError
from tests.unit.cli.test_query_server import TOKEN as SECRET
from tests.unit.cli.test_query_server import url

PROGRAMS = Path(__file__).parents[1] / "changed_programs"
ROW = {"user": "user-023", "map_key": 30000, "value": 395}
TOTALS = ["--operator", "process", "--state", "totals"]
__all__ = ["url"]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(shutil.copytree(PROGRAMS / "golden_3", tmp_path / "folder"))


def ask(job: str, *options: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, [job, *options], env=env)


def lines(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.exception
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_folder_and_a_server_answer_the_same(folder: str, url: str, tmp_path: Path) -> None:
    options = [*TOTALS, "--key", "nobody", "--key", "user-023", "--json"]
    nobody, found = lines(ask(folder, *options))
    assert (nobody["key"], nobody["rows"]) == ("nobody", [])
    assert (found["key"], found["rows"], found["checkpoint_id"]) == ("user-023", [ROW], 2)
    assert found["offsets"]["src"][0]["position"] == '{"next_offset": 330}'  # type: ignore[index]
    (tmp_path / "token").write_text(SECRET + "\n")
    assert lines(ask(url, *options, "--token-file", str(tmp_path / "token"))) == [nobody, found]
    assert lines(ask(url, *options, env={TOKEN: SECRET})) == [nobody, found]


def test_for_people_it_says_as_of_when(folder: str) -> None:
    shown = ask(folder, *TOTALS, "--key", "user-023", "--key", "nobody").stdout
    assert "395" in shown
    assert "no rows of nobody" in shown
    assert "as of checkpoint 2, " in shown
    assert shown.rstrip().endswith("s old, with all at 330")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--operator", "proces", "--state", "n", "--key", "a"], "did you mean 'process'"),
        (["--operator", "process", "--state", "totls", "--key", "a"], "did you mean 'totals'"),
        (["--operator", "src", "--state", "offsets", "--key", "a"], "has no key: use onceflow state"),
        ([*TOTALS, "--key", '{"usr": 1}'], "has no column 'usr'"),
        ([*TOTALS, "--key", "a", "--token-file", "x"], "is for a server's address"),
    ],
)
def test_what_is_refused(options: list[str], said: str, folder: str) -> None:
    error = ask(folder, *options).exception
    assert isinstance(error, UsageError)
    assert said in str(error)


def test_a_server_wants_its_token_and_names_what_it_has_not(url: str) -> None:
    assert f"set {TOKEN}" in str(ask(url, *TOTALS, "--key", "a", env={TOKEN: ""}).exception)
    assert "missing or wrong" in str(ask(url, *TOTALS, "--key", "a", env={TOKEN: "x" * 16}).exception)
    assert "can't be read" in str(ask(url, *TOTALS, "--key", "a", "--token-file", "/no/where").exception)
    wrong = ask(url, "--operator", "proces", "--state", "n", "--key", "a", env={TOKEN: SECRET})
    assert "did you mean 'process'" in str(wrong.exception)


def test_a_live_answer_is_the_jobs_or_none(folder: str, url: str) -> None:
    refused = ask(folder, *TOTALS, "--key", "user-023", "--live").exception
    assert isinstance(refused, Retryable)
    assert "a live answer comes from the job, and no job runs on" in str(refused)
    assert "or ask without --live" in str(refused)
    options = ["--operator", "totals", "--state", "n", "--key", "a", "--key", "b", "--live"]
    found, none = lines(ask(url, *options, "--json", env={TOKEN: SECRET}))
    assert (found["is_live"], found["attempt"], found["rows"]) == (True, 3, [{"user": "a", "value": False}])
    assert none["rows"] == []
    shown = ask(url, *options, env={TOKEN: SECRET}).stdout
    assert "live, in attempt 3: not committed; a restart takes it back to checkpoint 41" in shown


def test_a_name_that_is_no_folder_and_no_job(folder: str) -> None:
    error = ask("no-such-job", *TOTALS, "--key", "a").exception
    assert isinstance(error, UsageError)
