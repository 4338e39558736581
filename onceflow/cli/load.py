"""Finds the user's job: FILE.py, package.module:attr, or a function of the arguments after `--`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from onceflow.runtime.api.graph_builder import JobGraphBuilder
from onceflow.runtime.environment.program import Program, import_folder, imported_to_be_run
from onceflow.runtime.errors import OnceflowError, UsageError
from onceflow.runtime.mistakes import as_sentence, has_users_line, with_users_line
from onceflow.runtime.nearest import nearest

_FORMS = "FILE.py, FILE.py:name, package.module or package.module:name"


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """A job and where it comes from."""

    job: JobGraphBuilder
    program: Program


def load_job(target: str, arguments: Sequence[str] = ()) -> LoadedJob:
    """The job that `target` names; a function is called with `arguments`.

    Raises UsageError for anything that is wrong with the target or the program in it, naming the
    program's line; GraphError and the like as they are.
    """
    place, _, attribute = target.partition(":")
    if place.endswith(".py"):
        module = _import_file(Path(place))
        folder = import_folder(module)
    elif all(part.isidentifier() for part in place.split(".")):
        module = _import_module(place, Path.cwd())
        folder = import_folder(module, place)
    else:
        raise UsageError(f"{target!r} names no job: write {_FORMS}")
    found = _find(module, attribute, target)
    job = found if isinstance(found, JobGraphBuilder) else _call(found, list(arguments), target)
    if found is job and arguments:
        raise UsageError(
            f"{target} has a job that takes no arguments, but after '--' there are: {' '.join(arguments)}"
        )
    return LoadedJob(job, Program(module, folder))


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        here = [str(p) for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise UsageError(f"there is no file {path}{nearest(str(path), here)}")
    # A name of its own: a job in json.py must not stand in for the json of everybody else.
    name = f"onceflow_job_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _let_import_from(path.resolve().parent)
    loader = spec.loader
    with imported_to_be_run():
        _run_user_code(lambda: loader.exec_module(module), str(path))
    return module


def _import_module(name: str, folder: Path) -> ModuleType:
    _let_import_from(folder)
    try:
        with imported_to_be_run():
            _run_user_code(lambda: importlib.import_module(name), name)
        return sys.modules[name]
    except ModuleNotFoundError as error:
        raise UsageError(f"there is no module {error.name!r} to be imported from {folder}") from error


def _let_import_from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _find(module: ModuleType, attribute: str, target: str) -> Any:
    """The job, or the function that makes it."""
    names = [n for n in vars(module) if not n.startswith("_")]
    if attribute:
        if not hasattr(module, attribute):
            raise UsageError(f"{target}: there is no {attribute!r} in it{nearest(attribute, names)}")
        return getattr(module, attribute)
    jobs = [n for n in names if isinstance(getattr(module, n), JobGraphBuilder)]
    if len(jobs) == 1:
        return getattr(module, jobs[0])
    if jobs:
        raise UsageError(f"{target} has several jobs: name one, as in {target}:{jobs[0]} ({', '.join(jobs)})")
    if callable(getattr(module, "build", None)):
        return module.build
    raise UsageError(
        f'{target} has no job: make one at the top level, as in `job = Job("name")`, or in a function '
        "`def build(arguments: list[str]) -> Job`"
    )


def _call(found: Any, arguments: list[str], target: str) -> JobGraphBuilder:
    if not callable(found):
        raise UsageError(
            f"{target} is a {type(found).__name__}; expected a Job, or a function that makes one"
        )
    takes_arguments = _takes_arguments(found)
    if arguments and not takes_arguments:
        raise UsageError(f"{target} takes no arguments, but after '--' there are: {' '.join(arguments)}")
    try:
        job = _run_user_code(lambda: found(arguments) if takes_arguments else found(), target)
    except UsageError as error:
        if isinstance(error.__cause__, IndexError) and not arguments:
            error.args = (f"{error}: {found.__name__} was given [], since there is nothing after '--'",)
        raise
    if not isinstance(job, JobGraphBuilder):
        raise UsageError(f"{target} returned a {type(job).__name__}; expected a Job")
    return job


def _takes_arguments(build: Callable[..., Any]) -> bool:
    """Whether its first parameter is for what follows `--`: not if its default is a text or a number, as in
    `def build(servers="localhost:9092")`, which is a setting for who calls it from Python."""
    first = next(iter(inspect.signature(build).parameters.values()), None)
    return first is not None and not isinstance(first.default, str | int | float)


def _run_user_code(run: Callable[[], Any], where: str) -> Any:
    """What it returns. An error in it becomes a sentence with the user's line."""
    try:
        return run()
    except UsageError as error:
        raise with_users_line(error)  # noqa: B904 - it is the same error
    except OnceflowError:
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and not has_users_line(error):
            raise
        raise as_sentence(error, where) from error
