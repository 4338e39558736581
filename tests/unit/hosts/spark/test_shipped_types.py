"""Structs and NewTypes mean the same after they have travelled by value."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onceflow.runtime.hosts.spark.shipping import pack
from tests.conformance.in_slots import in_a_fresh_process, loaded

NAME = "onceflow_job_structs"
PROGRAM = '''
from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, NewType, Optional, TypeVar

import msgspec

T = TypeVar("T")
UserId = NewType("UserId", int)


class Base(msgspec.Struct, frozen=True, rename="camel", kw_only=True, tag=True, tag_field="what"):
    """A class below which others are."""

    user_id: UserId
    at_most: Annotated[int, msgspec.Meta(le=9)] = 3
    tags: list[str] = []
    limit: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if len(self.tags) > self.limit:
            raise ValueError("too many tags")

    @property
    def name(self) -> str:
        return f"user {self.user_id}"

    @classmethod
    def of(cls, user_id: int) -> Base:
        return cls(user_id=UserId(user_id))


class Below(Base, frozen=True, omit_defaults=True):
    """It has a field by position, and checks what its base checks and more."""

    size: float = 0.5
    more: dict[str, Any] = msgspec.field(default_factory=lambda: {"a": 1}, name="MORE")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 0:
            raise ValueError("negative")

    def bigger(self) -> Below:
        return msgspec.structs.replace(self, size=self.size + 1)

    def __str__(self) -> str:
        return f"below {Base.of(1).name}"


class Chain(msgspec.Struct):
    value: int
    next: Optional[Chain] = None
    many: list[Chain | int] = []


class Box(msgspec.Struct, Generic[T], weakref=True, order=True):
    item: T
    at: dt.date = dt.date(2026, 1, 1)


class Empty(msgspec.Struct):
    pass


def read(text: str, of: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=of)
    except msgspec.ValidationError as error:
        return str(error)


def kinds() -> Any:
    return Base.of(2), Below(1.5, user_id=1), Below(user_id=1).bigger(), Below(user_id=3).name, Below.limit


def checks() -> Any:
    found = []
    for make in (lambda: Base(user_id=1, tags=["a"] * 3), lambda: Below(-1.0, user_id=1)):
        try:
            found.append(make())
        except ValueError as error:
            found.append(str(error))
    return found


def texts() -> Any:
    below = Below(user_id=1, size=2.0)
    return msgspec.json.encode(below), read('{"what":"Below","userId":1,"MORE":{}}', Below), str(below)


def decoded() -> Any:
    wrong = [read('{"what":"Base","userId":1,"atMost":10}', Base), read('{"item":"x"}', Box[int])]
    return wrong, read('{"item":1}', Box[int]), read('{"value":1,"next":{"value":2}}', Chain)


def more() -> Any:
    try:
        Base.of(1).tags = []
    except AttributeError as error:
        frozen = str(error)
    return frozen, hash(Below(user_id=1, tags=(), more=None)) is not None, Box(1) < Box(2), Empty(), UserId(7)


def docs() -> Any:
    return Base.__doc__, Base.__qualname__, Base.__module__, UserId.__name__, Below.__mro__


CASES = {each.__name__: each for each in (kinds, checks, texts, decoded, more, docs)}
'''


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, str]]:
    """What each case gives where the program is, and in a slot."""
    folder = tmp_path_factory.mktemp("structs")
    (folder / "structs.py").write_text(PROGRAM)
    program = loaded(NAME, folder / "structs.py")
    there, _ = in_a_fresh_process(pack(program.CASES, program), NAME, folder)
    return {name: repr(case()) for name, case in program.CASES.items()}, there


@pytest.mark.parametrize("case", ["kinds", "checks", "texts", "decoded", "more", "docs"])
def test_a_struct_means_the_same_in_a_slot(case: str, both: tuple[dict[str, str], dict[str, str]]) -> None:
    here, there = both
    assert "Error" not in here[case]
    assert there[case] == here[case]


def test_a_struct_of_an_importable_module_is_imported(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import msgspec\n\n\nclass Point(msgspec.Struct):\n    x: int\n")
    code = (
        "import beside, pickle\nfrom onceflow.runtime.hosts.spark.shipping import pack, unpack\n"
        "assert unpack(pack(beside.Point, None)) is beside.Point"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
