"""Rules of the tests that run: what a test must not do, and which module has no test file of its own name.

A rule that is broken on purpose must fail: each finder below is shown a planted fault first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.source_facts import tree
from tests.test_repository import name_of, python_files


def sleeps(module: ast.Module) -> set[str]:
    """The calls as they are written. A sleep is right only in a loop with a condition and a deadline that
    fails."""
    waits = {
        call
        for loop in ast.walk(module)
        if isinstance(loop, ast.While) and any(isinstance(n, ast.Assert | ast.Raise) for n in ast.walk(loop))
        for call in ast.walk(loop)
    }
    calls = [n for n in ast.walk(module) if isinstance(n, ast.Call) and n not in waits]
    return {ast.unparse(n.func) for n in calls if ast.unparse(n.func) in {"sleep", "time.sleep"}}


PATCHERS = {"setattr", "delattr", "setitem", "delitem", "patch", "patch_object", "__setattr__"}
OF_THE_PROCESS = {"os.environ", "sys.modules", "sys.path"}
"""What a test may change, and puts back: they are where a process keeps what it was given."""


def patches(module: ast.Module) -> set[str]:
    """What puts another thing in the place of a name of the code, as it is written: a call of a patcher,
    whatever its owner is called, an import of mock, an assignment to what was imported."""
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(module)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return {text for node in ast.walk(module) for text in _patches(node, imported)}


def _patches(node: ast.AST, imported: set[str]) -> Iterator[str]:
    match node:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            words = {word for alias in names for word in alias.name.split(".")}
            words.update((getattr(node, "module", "") or "").split("."))
            if words & {"mock", "pytest_mock"}:
                yield ast.unparse(node)
        case ast.Call(func=ast.Attribute(value=ast.Name("object"), attr="__setattr__")):
            pass  # a frozen dataclass of the test sets its own field
        case ast.Call(func=func):
            words = set(ast.unparse(func).split("."))
            if words & PATCHERS or words & {"mock", "mocker"}:
                yield ast.unparse(node)
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            text = ast.unparse(node)
            if _root(node) in imported and not any(text.startswith(each) for each in OF_THE_PROCESS):
                yield text


def _root(node: ast.expr) -> str:
    """`a` of `a.b[0].c` and of `vars(a)["b"]`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "vars" and node.args:
        return _root(node.args[0])
    return node.id if isinstance(node, ast.Name) else ""


def test_tests_do_not_sleep() -> None:
    assert sleeps(ast.parse("time.sleep(1); sleep(2); broker.wait()")) == {"time.sleep", "sleep"}
    waiting = "while not done():\n assert now() < deadline\n time.sleep(0.01)"
    assert sleeps(ast.parse(waiting)) == set()
    wrong = {name_of(path): found for path in python_files("tests") if (found := sleeps(tree(path)))}
    assert not wrong, "wait for a condition with a deadline, or move a ManualClock"


IMPORTS = """
import os, sys
from onceflow.runtime.slot import slot
from onceflow.runtime.slot.slot import Slot
"""
PATCHED = """
import unittest.mock
from unittest import mock
from pytest_mock import MockerFixture
mock.patch('x')
unittest.mock.patch.object(a, 'b')
patch.object(a, 'b')
mocker.spy(slot, 'run')
monkeypatch.setattr(slot, 'LIMIT', 3)
monkeypatch.setattr('onceflow.runtime.slot.slot.LIMIT', 3)
with pytest.MonkeyPatch.context() as other: other.setattr(slot, 'LIMIT', 3)
monkeypatch.delattr(slot, 'LIMIT')
monkeypatch.setitem(vars(slot), 'LIMIT', 3)
setattr(slot, 'LIMIT', 3)
type.__setattr__(Slot, 'run', None)
slot.LIMIT = 3
slot.LIMIT: int = 3
Slot.run = lambda self: None
slot.LIMITS['all'] += 1
a, slot.LIMIT = 1, 3
vars(slot)['LIMIT'] = 3
slot.__dict__['LIMIT'] = 3
del slot.LIMIT
"""
UNPATCHED = """
made = Slot()
made.limit = 3
self.slot.limit = 3
object.__setattr__(self, 'name', 'x')
monkeypatch.setenv('A', 'b')
os.environ['A'] = 'b'
sys.modules['job'] = module
dispatch(made)
"""


@pytest.mark.parametrize("line", PATCHED.strip().splitlines())
def test_each_way_to_patch_is_found(line: str) -> None:
    assert patches(ast.parse(IMPORTS + line))


def test_tests_put_nothing_in_the_place_of_a_name() -> None:
    assert patches(ast.parse(IMPORTS + UNPATCHED)) == set()
    wrong = {name_of(path): found for path in python_files("tests") if (found := patches(tree(path)))}
    assert not wrong, "give a fake, a limit or a clock to the constructor; a mutant is a Mutant"
