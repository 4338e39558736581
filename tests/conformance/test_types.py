"""Each type of the table keeps its values: in columns, JSON, Avro, state and keys; in the process that built
the graph, and by value in one that has never seen the types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onceflow.runtime.hosts.spark.shipping import pack
from tests.conformance.in_slots import in_a_fresh_process, loaded
from tests.conformance.typed_cases import RIGHT, cases_of

NAME = "onceflow_job_types"
PROGRAM = Path(__file__).parent / "types_table.py"
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "types.md"
BEGIN, END = "<!-- written by scripts/write_types_table.py -->\n", "<!-- end -->\n"
Cases = dict[str, Callable[[], str]]


@pytest.fixture(scope="module")
def program() -> ModuleType:
    return loaded(NAME, PROGRAM)


@pytest.fixture(scope="module")
def cases(program: ModuleType) -> Cases:
    return {name: case for row in program.ROWS for name, case in cases_of(row, program.record_type).items()}


@pytest.fixture(scope="module")
def shipped(
    program: ModuleType, cases: Cases, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, str], list[str]]:
    return in_a_fresh_process(pack(cases, program), NAME, tmp_path_factory.mktemp("shipped"))


@pytest.mark.parametrize("where", ["same process", "by value in a fresh process"])
def test_each_type_keeps_its_values(where: str, cases: Cases, request: pytest.FixtureRequest) -> None:
    if where == "same process":
        results = {name: outcome(case) for name, case in cases.items()}
    else:
        results, _ = request.getfixturevalue("shipped")
    assert results.keys() == cases.keys()
    assert not {name: found for name, found in results.items() if found != repr(RIGHT)}


def test_no_class_of_the_users_is_looked_into_where_its_file_is_not(
    shipped: tuple[dict[str, str], list[str]],
) -> None:
    _, looked = shipped
    assert not looked


def outcome(case: Callable[[], Any]) -> str:
    try:
        return repr(case())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_the_table_of_the_documents_is_that_of_the_tests(program: ModuleType) -> None:
    document = DOCUMENT.read_text()
    table = program.written_table()
    assert f"{BEGIN}\n{table}\n{END}" in document, "run: python scripts/write_types_table.py"
