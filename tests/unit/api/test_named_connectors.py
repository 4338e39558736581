"""Connectors by name: those of onceflow, and of a real package that pip has installed."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from onceflow import Job, __version__, load_format, load_sink, load_source
from onceflow.cli.connectors import app
from onceflow.connectors.formats import Text
from onceflow.runtime.api.named_connectors import KINDS, offered
from onceflow.runtime.errors import UsageError
from onceflow.sinks.print import PrintSink
from tests.package_of_connectors import install

ROOT = Path(__file__).resolve().parents[3]
OURS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]


@pytest.fixture(scope="module", autouse=True)
def _shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    site = str(install(tmp_path_factory.mktemp("shelf")))
    sys.path.insert(0, site)
    importlib.invalidate_caches()
    yield
    sys.path.remove(site)
    importlib.invalidate_caches()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_what_pyproject_offers_is_there(kind: Any) -> None:
    for name, place in OURS[kind.group].items():
        made = metadata.EntryPoint(name, place, kind.group).load()
        assert callable(made), place


def test_what_is_installed_is_what_pyproject_offers() -> None:
    found = {
        (kind.group, each.name, each.entry_point.value)
        for kind in KINDS.values()
        for each in offered(kind.name)
        if each.package == "onceflow"
    }
    wanted = {
        (kind.group, name, place) for kind in KINDS.values() for name, place in OURS[kind.group].items()
    }
    assert found == wanted, "run `pip install -e .` again: make setup does, and writes entry points down"


def test_ours_are_made_with_their_options() -> None:
    assert load_format("text", "line") == Text("line")
    assert load_sink("print", label="n") == PrintSink("n")


def test_a_job_of_connectors_that_pip_has_installed() -> None:
    job = Job("by-name")
    rows = job.source(load_source("shelf", end=5, start=2)).collect()
    job.run(master="threads[1]")
    assert rows == [{"n": 2}, {"n": 3}, {"n": 4}]
    assert load_sink("shelf", "somewhere", any_option=1).store is not None


MISTAKES: list[tuple[Any, str]] = [
    (
        lambda: load_sink("shelv"),
        r"there is no sink 'shelv' \(did you mean 'shelf'\?\): installed are .*files, ",
    ),
    (lambda: load_source("print"), r"there is no source 'print': installed are delta, files, .*, shelf$"),
    (
        lambda: load_sink("shelf-old"),
        r"sink 'shelf-old' of onceflow-shelf 1\.2\.3 can't be imported from onceflow_shelf\.old:Sink: "
        r"ModuleNotFoundError: No module named 'shelf_client_that_is_not_there': install what it needs",
    ),
    (lambda: load_sink("shelf-older"), r"is_not_there': pip install 'onceflow-shelf\[old\]'$"),
    (
        lambda: load_source("shelf", ende=5),
        r"source 'shelf' of onceflow-shelf 1\.2\.3 has no option 'ende' \(did you mean 'end'\?\): "
        "it has end, start",
    ),
    (
        lambda: load_source("shelf"),
        r"can't be made: missing a required argument: 'end': it takes end, start",
    ),
    (
        lambda: load_sink("shelf-wrong", 3),
        r"sink 'shelf-wrong' of onceflow-shelf 1\.2\.3 is no sink: onceflow_shelf:Shelf gives a \w+ without "
        "open_writer: ask its author",
    ),
    (
        lambda: load_format("raw"),
        rf"format 'raw' is offered by onceflow {re.escape(__version__)} and onceflow-shelf 1\.2\.3: "
        "uninstall one of them, or "
        r"import what you mean from onceflow\.connectors\.formats:Raw or onceflow_shelf:Shelf",
    ),
]


@pytest.mark.parametrize(("mistake", "says"), MISTAKES)
def test_a_mistake_is_one_sentence(mistake: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says) as found:
        mistake()
    assert "\n" not in str(found.value)


def test_the_command_lists_what_is_found_and_what_is_wrong() -> None:
    listed = CliRunner().invoke(app).stdout
    lines = {tuple(re.findall(r"[^\s│]+", line)[:4]): line for line in listed.splitlines()}
    assert ("source", "shelf", "onceflow-shelf", "1.2.3") in lines
    assert ("sink", "kafka", "onceflow", __version__) in lines
    old = lines["sink", "shelf-old", "onceflow-shelf", "1.2.3"]
    assert "No module named 'shelf_client_that_is_not_there'" in old
    older = lines["sink", "shelf-older", "onceflow-shelf", "1.2.3"]
    assert "needs pip install 'onceflow-shelf[old]'" in older
    assert "another package has this name too" in lines["format", "raw", "onceflow", __version__]
    as_json = CliRunner().invoke(app, ["--json"]).stdout
    assert '"name": "shelf-old"' in as_json
