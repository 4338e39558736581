"""Where the program raises an error of its own, and what it says: read from the source, without running it.

A sentence is a template: what is filled in stands between ‹ and ›.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "runtime",
    "connectors",
    "sinks",
    "onceflow/cli",
    "onceflow/structured_streaming",
    "onceflow/testing",
)
NOT_MET = "runtime/testing/"
"""Raised in simulations only."""

_WORD = re.compile(r"[\w.]+")
_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Site:
    """One call that makes an error. `sentences`: all that it may say; none: the text comes from elsewhere."""

    file: str
    line: int
    error: str
    sentences: tuple[str, ...]
    source: str
    """The call as it is written."""


@cache
def modules() -> dict[str, ast.Module]:
    """The modules whose errors people may meet, by the names of their files."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(NOT_MET):
                found[name] = ast.parse(path.read_text())
    return found


def errors(trees: dict[str, ast.Module]) -> dict[str, str]:
    """The classes of errors that are ours -> the class above each."""
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found = {"OnceflowError": "Exception"}
    while True:
        new = {
            c.name: base
            for c in classes
            for base in (last_name(b) for b in c.bases)
            if base in found and c.name not in found
        }
        if not new:
            return found
        found |= new


def sites(trees: dict[str, ast.Module]) -> list[Site]:
    """Every call of one of these classes, in the order of files and lines."""
    ours = errors(trees)
    found = []
    for name, tree in trees.items():
        reader = _Reader(tree)
        for scope, call in _calls(tree, tree):
            if last_name(call.func) in ours:
                said = reader.said(call.args[0], scope, _DEPTH) if call.args else []
                sentences = tuple(dict.fromkeys(" ".join(each.split()) for each in said))
                found.append(Site(name, call.lineno, last_name(call.func), sentences, ast.unparse(call)))
    return sorted(found, key=lambda site: (site.file, site.line))


@cache
def all_sites() -> Sequence[Site]:
    """The sites of the modules whose errors people may meet."""
    return sites(modules())


def last_name(node: ast.expr) -> str:
    """`Fatal` of `Fatal` and of `errors.Fatal`; "" of anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _calls(node: ast.AST, scope: ast.AST) -> Iterator[tuple[ast.AST, ast.Call]]:
    """The calls below a node, each with the function that it is in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield scope, child
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _calls(child, child if is_function else scope)


class _Reader:
    """What expressions of one module may say."""

    def __init__(self, tree: ast.Module) -> None:
        self._constants = {
            ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)
        }
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

    def said(self, node: ast.expr, scope: ast.AST, depth: int) -> list[str]:
        match node:
            case ast.Constant(str(text)):
                return [text]
            case ast.JoinedStr(values):
                return ["".join(self._part(value) for value in values)]
            case ast.BinOp(left, ast.Add(), right):
                return [
                    a + b
                    for a in self._or_hole(left, scope, depth)
                    for b in self._or_hole(right, scope, depth)
                ]
            case ast.IfExp(_, yes, no):
                return [*self.said(yes, scope, depth), *self.said(no, scope, depth)]
            case ast.Name(name) if depth:
                return self._named(name, scope, depth - 1)
            case ast.Call(func) if depth and (function := self._functions.get(last_name(func))):
                returns = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value]
                return [text for value in returns for text in self.said(value, function, depth - 1)]
            case ast.Call(ast.Attribute(value, "format")):
                return self.said(value, scope, depth)
            case ast.BoolOp(values=values):
                return [text for value in values for text in self.said(value, scope, depth)]
        return []

    def _named(self, name: str, scope: ast.AST, depth: int) -> list[str]:
        """What a name may stand for: a constant of the module, or what its function has assigned to it."""
        if name in self._constants:
            return self.said(self._constants[name], scope, depth)
        given = [
            n.value
            for n in ast.walk(scope)
            if isinstance(n, ast.Assign) and any(ast.unparse(t) == name for t in n.targets)
        ]
        return [text for value in given for text in self.said(value, scope, depth)]

    def _or_hole(self, node: ast.expr, scope: ast.AST, depth: int) -> list[str]:
        return self.said(node, scope, depth) or [_hole(node)]

    def _part(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return str(node.value)
        assert isinstance(node, ast.FormattedValue)
        constant = self._constants.get(ast.unparse(node.value))
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str | int):
            return str(constant.value)
        hole = _hole(node.value)
        return f"'{hole}'" if node.conversion == ord("r") else hole


def _hole(node: ast.expr) -> str:
    """The place of something that is filled in, named by the last word of its expression."""
    match node:
        case ast.Call(func=func, args=args) if last_name(func) in _OF_THEIR_ARGUMENT and args:
            return _hole(args[-1])
        case ast.Call(ast.Attribute(value)):
            return _hole(value) if isinstance(value, ast.Name | ast.Attribute) else "‹…›"
        case ast.Call(func):
            word = last_name(func)
        case ast.Subscript(value):
            word = last_name(value)
        case ast.Name() | ast.Attribute():
            word = last_name(node)
        case _:
            return "‹…›"
    word = word.strip("_").removesuffix("_ms").replace("_", " ")
    return f"‹{word}›" if _WORD.match(word) else "‹…›"


_OF_THEIR_ARGUMENT = {"type_name", "repr", "str", "len", "sorted", "join", "function_name", "list"}
