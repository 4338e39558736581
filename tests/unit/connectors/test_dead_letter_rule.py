"""One rule for all sources: a record that can't be decoded ends the job, or is a dead letter. A source that a
program can name decodes what it reads and has a place for dead letters, or stands below with the reason."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from onceflow.runtime.contracts import DeadLetterSource

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
SOURCES = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]["onceflow.sources"]
DECODES_NOTHING = {
    "nexmark": "it makes its records itself",
    "delta": "a column of a table has one type, in all rows of a file or in none",
}
OF_ITS_PARTS = ("hybrid",)


def made_by(name: str) -> Any:
    module, _, attribute = SOURCES[name].partition(" ")[0].partition(":")
    return getattr(import_module(module), attribute)


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in DECODES_NOTHING])
def test_a_source_that_decodes_has_a_place_for_what_it_can_not(name: str) -> None:
    maker = made_by(name)
    made = inspect.signature(maker).return_annotation if inspect.isfunction(maker) else maker
    if isinstance(made, str):
        made = getattr(inspect.getmodule(maker), made)
    assert callable(getattr(made, "dead_letter_sink", None)), f"{made.__name__} is no DeadLetterSource"
    if name not in OF_ITS_PARTS:
        assert "dead_letters" in inspect.signature(maker).parameters
        found = {field.name: field.default for field in dataclasses.fields(made)}
        assert found["dead_letters"] is None, "by default such a record ends the job"


def test_the_protocol_is_what_the_graph_asks() -> None:
    assert {name for name in vars(DeadLetterSource) if not name.startswith("_")} == {"dead_letter_sink"}
