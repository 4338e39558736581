"""A function imports only what may be missing, or says above the import why it is there: what is imported
inside functions is seen by nobody who reads the head of a file, and hides circles.

A rule that is broken on purpose must fail: the finder below is shown a planted fault first.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from itertools import chain

from tests.test_repository import PRODUCTION, ROOT, name_of, python_files

MAY_BE_MISSING = {"confluent_kafka.schema_registry", "llvmlite", "numba"}
"""Extras of a plain dependency, and plain dependencies that some platform has not."""
KERNELS = {"onceflow.runtime.kernels.compiled"}
"""What imports numba where a kernel is declared."""
ROOMS = {
    "onceflow/structured_streaming/": "Spark starts a process for each query's plan, which imports only what "
    "plans (ADR 71, 104), and forks its workers from a daemon that must be no thread's",
    "onceflow/testing/pytest_plugin.py": "each pytest run of a user's loads it, also those without a fixture",
}
"""Where processes start so often that nothing is to be imported that is not needed."""


def plain_dependencies() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    words = (re.split(r"[<>=!~ \[;]", each)[0] for each in project["dependencies"])
    return {word.lower().replace("_", "-") for word in words}


class Imports:
    """Which modules import what, and whether that may be missing."""

    def __init__(self, modules: Mapping[str, ast.Module]) -> None:
        self._plain = plain_dependencies()
        self._owners = metadata.packages_distributions()
        heads = {name: [*chain.from_iterable(_heads(tree.body))] for name, tree in modules.items()}
        self._ours = set(heads)
        self._missing = {*KERNELS}
        found = True
        while found:
            more = {n for n, head in heads.items() if any(map(self.may_be_missing, head))}
            found = bool(more - self._missing)
            self._missing |= more

    def may_be_missing(self, name: str) -> bool:
        """Whether it is an optional package, or a module of ours that can't be imported without one."""
        top = name.split(".")[0]
        if name in self._ours or top in sys.stdlib_module_names or top in {"onceflow", "pyspark", "py4j"}:
            return name in self._missing
        owners = {owner.lower().replace("_", "-") for owner in self._owners.get(top, ())}
        return any(f"{name}.".startswith(f"{each}.") for each in MAY_BE_MISSING) or not owners & self._plain

    def unexplained(self, tree: ast.Module, lines: list[str]) -> Iterator[int]:
        """The lines with an import inside a function that nothing explains: no comment on the line or above
        it, and nothing in the function that may be missing."""
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        for function in functions:
            inside = [n for n in ast.walk(function) if isinstance(n, ast.Import | ast.ImportFrom)]
            if any(self.may_be_missing(name) for node in inside for name in _names(node)):
                continue
            for node in inside:
                first = node.lineno - 1
                above = lines[first - 1].strip()
                if not (above.startswith("#") or "  # " in lines[first] or _is_import(above)):
                    yield node.lineno


def _is_import(line: str) -> bool:
    """Whether the comment of the import above counts for the next one as well."""
    return line.startswith(("from ", "import "))


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]


def _heads(body: list[ast.stmt]) -> Iterator[list[str]]:
    """What is imported when the module is, not only when types are checked."""
    for node in body:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield _names(node)
            case ast.If(test=ast.Name("TYPE_CHECKING")) | ast.FunctionDef() | ast.AsyncFunctionDef():
                pass
            case _:
                for part in ("body", "orelse", "finalbody", "handlers"):
                    yield from _heads(getattr(node, part, []))


INDENTED = re.compile(r"^ +(?:from|import) ", re.MULTILINE)
PLANTED = """
def opens():
    import somewhere_else
    from onceflow.runtime import errors
def why():
    # Here, since few need it.
    import json
    from json import loads
def hides():
    from onceflow.runtime import errors
    import json
def circle():
    import json  # it imports this file
"""


def test_a_function_imports_what_may_be_missing_or_says_why() -> None:
    modules = {
        "onceflow." + name_of(path).removeprefix("onceflow/").removesuffix(".py").replace("/", "."): path
        for path in python_files(*PRODUCTION)
    }
    trees = {
        name.removesuffix(".__init__"): ast.parse(path.read_text(), str(path))
        for name, path in modules.items()
    }
    found = Imports(trees)
    assert list(found.unexplained(ast.parse(PLANTED), PLANTED.splitlines())) == [10]
    assert found.may_be_missing("onceflow.runtime.state.hash_kernels")
    assert not found.may_be_missing("onceflow.runtime.state.hashing")
    wrong = [
        f"{name_of(path)}:{line}"
        for path, tree in zip(modules.values(), trees.values(), strict=True)
        if not name_of(path).startswith(tuple(ROOMS)) and INDENTED.search(path.read_text())
        for line in found.unexplained(tree, path.read_text().splitlines())
    ]
    assert not wrong, "import it at the head of the file; or say above it why not, in a comment"
