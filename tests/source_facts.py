"""What the rules of the repository ask of its Python files, read once for all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


Nodes = Sequence[ast.AST]
"""All nodes of a module, in the order of ast.walk: walking takes longer than what is looked for."""


def nodes(text: str) -> Nodes:
    return [*ast.walk(ast.parse(text))]


@dataclass(frozen=True)
class Facts:
    """What the rules ask of a file; its tree is read once for all of them, and not kept."""

    imports: Sequence[tuple[int, str]]
    lengths: Sequence[tuple[str, int]]
    """The name and the lines of each function."""
    parameters: Sequence[tuple[str, int]]
    docstrings: Sequence[str]
    unbounded_clients: set[str]
    says_what_it_is: bool


@cache
def facts(path: Path) -> Facts:
    module = tree(path)
    found = [*ast.walk(module)]
    return Facts(
        [*imports(found)],
        [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions(found)],
        [(node.name, parameters(node)) for node in functions(found)],
        [*docstrings(found)],
        unbounded_clients(found),
        bool(ast.get_docstring(module)),
    )


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return sum(a.arg not in ("self", "cls") for a in (*node.args.args, *node.args.kwonlyargs))


def functions(found: Nodes) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in found:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def imports(found: Nodes) -> Iterator[tuple[int, str]]:
    """(relative level, dotted name) of everything imported, wherever in the file."""
    for node in found:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


CLIENTS = {"AdminClient", "Consumer", "KafkaAdminClient", "Producer"}
SETTINGS = {"admin", "assigned_consumer", "consumer", "kafka_python", "producer"}
"""What makes the settings of a client: they keep it from storming at the port of a dead broker."""


def unbounded_clients(found: Nodes) -> set[str]:
    """Calls that make a Kafka client of other settings than what KafkaOptions gives, as they are written."""

    def is_bounded(node: ast.expr | None) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in SETTINGS

    named = {
        ast.unparse(node.targets[0])
        for node in found
        if isinstance(node, ast.Assign) and is_bounded(node.value)
    }
    calls = [
        node
        for node in found
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in CLIENTS
    ]
    given = [(call, [*call.args, *(keyword.value for keyword in call.keywords)]) for call in calls]
    return {
        ast.unparse(call)
        for call, values in given
        if not (len(values) == 1 and (is_bounded(values[0]) or ast.unparse(values[0]) in named))
    }


def docstrings(found: Nodes) -> Iterator[str]:
    """All of a module: its own, those of classes and functions, and those below constants and fields."""
    for node in found:
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(ast.Constant(str(text))):
                    yield text
