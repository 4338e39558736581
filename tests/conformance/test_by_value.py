"""The user's types mean the same in a slot of a Spark master, where they arrive by value in a process that
has never seen their file, as they do in the process that built the graph."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import cloudpickle

from onceflow.runtime.hosts.spark.shipping import pack
from tests.conformance.in_slots import in_a_fresh_process, loaded

PROGRAM = Path(__file__).parent / "shipped_program.py"

NAME = "onceflow_job_shipped"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    return loaded(NAME, PROGRAM)


@pytest.fixture(scope="module")
def shipped(
    program: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, str], list[str]]:
    cases = {name: case for name, (case, _) in program.CASES.items()}
    return in_a_fresh_process(pack(cases, program), NAME, tmp_path_factory.mktemp("shipped"))


def compared(results: dict[str, str], program: ModuleType) -> dict[str, tuple[str, str]]:
    """What was given and what is right, of the cases where they differ."""
    right = {name: repr(value) for name, (_, value) in program.CASES.items()}
    assert results.keys() == right.keys()
    return {name: (results[name], value) for name, value in right.items() if results[name] != value}


@pytest.mark.parametrize("where", ["same process", "by value in a fresh process"])
def test_each_case_is_right(where: str, program: ModuleType, request: pytest.FixtureRequest) -> None:
    if where == "same process":
        results = {name: repr(case()) for name, (case, _) in program.CASES.items()}
    else:
        results, _ = request.getfixturevalue("shipped")
    assert not compared(results, program)


def test_no_class_of_the_users_is_looked_into_where_its_file_is_not(
    shipped: tuple[dict[str, str], list[str]],
) -> None:
    _, looked = shipped
    assert not looked


@pytest.mark.parametrize("name", ["own code: required_fields", "own code: not_replaced", "own code: hinted"])
def test_sparks_own_pickler_alone_would_be_found_out(name: str, program: ModuleType, tmp_path: Path) -> None:
    """The planted fault: `dataclasses` compares copies, and annotations can't be looked up."""
    case, right = program.CASES[name]
    cloudpickle.register_pickle_by_value(program)
    try:
        packed = pickle.dumps(None) + cloudpickle.dumps({name: case})
    finally:
        cloudpickle.unregister_pickle_by_value(program)
    results, _ = in_a_fresh_process(packed, NAME, tmp_path)
    assert results[name] != repr(right)
