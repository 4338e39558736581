"""The user's types mean the same in a slot of a Spark master, where they arrive by value in a process that
has never seen their file, as they do in the process that built the graph."""

from __future__ import annotations

import importlib.util
import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import cloudpickle

import onceflow
from onceflow.runtime.hosts.spark.shipping import pack

PROGRAM = Path(__file__).parent / "shipped_program.py"

SLOT = """
import json, pathlib, sys
from onceflow.runtime.hosts.spark.shipping import unpack
cases = unpack(pathlib.Path(sys.argv[1]).read_bytes())
ours = tuple(json.loads(sys.argv[2]))
looked = []
def watch(frame, event, argument):
    if event == "call" and frame.f_code.co_name in ("get_type_hints", "fields"):
        caller = frame.f_back.f_code.co_filename
        of = getattr(next(iter(frame.f_locals.values()), None), "__module__", "")
        if caller.startswith(ours) and of == "onceflow_job_shipped":
            looked.append(f"{frame.f_code.co_name} from {caller}:{frame.f_back.f_lineno}")
results = {}
for name, case in cases.items():
    sys.setprofile(watch)
    try:
        results[name] = repr(case())
    except BaseException as error:
        results[name] = f"{type(error).__name__}: {error}"
    finally:
        sys.setprofile(None)
assert not hasattr(sys.modules.get("onceflow_job_shipped"), "__file__")
print(json.dumps([results, looked]))
"""


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """Loaded as `onceflow run FILE` does it."""
    name = "onceflow_job_shipped"
    spec = importlib.util.spec_from_file_location(name, PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def in_a_fresh_process(packed: bytes, folder: Path) -> tuple[dict[str, str], list[str]]:
    """What each case gives there, and where a user's class was looked into by our code."""
    (folder / "cases").write_bytes(packed)
    ours = [str(Path(module).resolve()) for module in onceflow.__path__]
    ours += [str(Path(ours[0], part).resolve()) for part in ("runtime", "connectors", "sinks")]
    done = subprocess.run(
        [sys.executable, "-c", SLOT, str(folder / "cases"), json.dumps(ours)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results, looked = json.loads(done.stdout)
    return results, looked


@pytest.fixture(scope="module")
def shipped(
    program: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, str], list[str]]:
    cases = {name: case for name, (case, _) in program.CASES.items()}
    return in_a_fresh_process(pack(cases, program), tmp_path_factory.mktemp("shipped"))


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
    results, _ = in_a_fresh_process(packed, tmp_path)
    assert results[name] != repr(right)
