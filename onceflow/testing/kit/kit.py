"""What all kits have: a folder, settings, a test for each check, and what is said when one fails."""

from __future__ import annotations

import inspect
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Self
from unittest import SkipTest

from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import UsageError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.testing.conformance.quotations import Quotation, quotation
from onceflow.runtime.testing.conformance.recorded_calls import Calls
from onceflow.testing.kit.processes import KILLED, KitProcess


class BrokenContract(AssertionError):
    """A check has failed: what was seen, the sentence of the contract that is broken, and the calls that show
    it."""


class Kit:
    """The base of all kits. A subclass whose name begins with `Test` is found by pytest, and each check is a
    test of its own; `check_all()` runs them without pytest.

    A new instance is made for each test and for each output within one. Its methods are called in the test's
    process and, unless `in_new_processes` is False, in new ones: what those have to know is in `settings`
    and below `folder`.
    """

    in_new_processes: ClassVar[bool] = True
    """False: what is written or read is in the memory of the test's process only. Then no process is killed,
    attempts are only left, and what needs a second process is skipped."""
    _process: ClassVar[KitProcess | None] = None

    @cached_property
    def folder(self) -> str:
        """An empty folder of this test's; gone when it ends."""
        return tempfile.mkdtemp(prefix="onceflow-kit-")

    @cached_property
    def settings(self) -> dict[str, Json]:
        """What new processes have to know, such as the URL of a test server: set by `prepare`, or by a
        fixture of pytest's."""
        return {}

    def prepare(self) -> None:
        """Make what a test needs outside of this process, such as an empty table. Called once for each
        output, in the test's process."""

    # --- Running ---

    @classmethod
    def checks(cls) -> Sequence[str]:
        """The names of the checks, without `test_`."""
        return [name.removeprefix("test_") for name in dir(cls) if name.startswith("test_")]

    @classmethod
    def quotation(cls, name: str) -> Quotation | None:
        """The sentence of the contract that a check is about."""
        return quotation(getattr(cls, f"test_{name}").check)

    @classmethod
    def check(cls, name: str) -> None:
        """Run one check, without pytest. Raises BrokenContract."""
        if name not in cls.checks():
            raise UsageError(f"{cls.__qualname__} has no check {name!r}{nearest(name, cls.checks())}")
        kit = cls()
        try:
            getattr(kit, f"test_{name}")()
        finally:
            kit.teardown_method()

    @classmethod
    def check_all(cls) -> list[str]:
        """Run all checks, without pytest; the names of those that had nothing to check. Raises BrokenContract
        for the first that fails."""
        skipped = []
        try:
            for name in cls.checks():
                try:
                    cls.check(name)
                except SkipTest:
                    skipped.append(name)
        finally:
            cls.teardown_class()
        return skipped

    def teardown_method(self) -> None:
        """Called by pytest behind each test."""
        for other in self._others:
            other.teardown_method()
        if "folder" in vars(self):
            shutil.rmtree(self.folder, ignore_errors=True)

    @classmethod
    def teardown_class(cls) -> None:
        """Called by pytest behind the last test."""
        process = vars(cls).get("_process")
        if process is not None:
            cls._process = None
            process.close()

    # --- For the kits ---

    @cached_property
    def calls(self) -> Calls:
        """What was called in this process on what is under test."""
        return Calls()

    @cached_property
    def _others(self) -> list[Kit]:
        return []

    def again(self) -> Self:
        """A kit with a fresh output, and with the settings that this one was given."""
        other = type(self)()
        other.settings.update(self.settings)
        self._others.append(other)
        other.prepare()
        return other

    def elsewhere(self, scenario: str, arguments: Mapping[str, Json]) -> Any:
        """Run a scenario on this kit's output in a new process."""
        cls = type(self)
        if vars(cls).get("_process") is None:
            cls._process = KitProcess(cls)
        assert cls._process is not None
        task = {"settings": self.settings, "folder": self.folder, "scenario": scenario}
        return cls._process.run({**task, "arguments": arguments})

    def do_in_new_process(self, scenario: str, arguments: Mapping[str, Json]) -> Json:
        """The other end of `elsewhere`."""
        raise NotImplementedError(scenario)

    def run_check(self, check: Callable[[Any], None], case: Callable[[Any], Any]) -> None:
        """Run a check on what `case` makes of this kit."""
        __tracebackhide__ = True
        self.prepare()
        try:
            check(case(self))
        except (SkipTest, UsageError, NotImplementedError):
            raise
        except Exception as error:
            last = self._others[-1] if self._others else self
            raise self.broken(check, error, last.calls.steps) from error

    def broken(self, check: Callable[..., Any], error: BaseException, calls: Sequence[str]) -> BrokenContract:
        """The error of a check that failed."""
        cls, name = type(self), check.__name__
        quoted = quotation(check)
        what = f"{type(error).__name__}: {error}"
        if isinstance(error, AssertionError):
            what = str(error).split("\nassert ")[0]  # without what pytest adds
        lines = [f"{name.replace('_', ' ')}: {what.strip() or 'the check failed'}"]
        if quoted is not None:
            lines.append(f'The contract says ({quoted.place}): "{" ".join(quoted.sentence.split())}"')
        file = inspect.getfile(cls)
        lines.append(f"To see it again: pytest {file}::{cls.__qualname__}::test_{name}")
        if calls:
            lines += ["What was done:", *(f"  {number}. {step}" for number, step in enumerate(calls, 1))]
        return BrokenContract("\n".join(lines))


def die() -> NoReturn:
    """End this process as a kill would."""
    os._exit(KILLED)


def add_tests(kit: type[Kit], checks: Sequence[Callable[..., None]], runner: Callable[..., None]) -> None:
    """Give the kit a test for each check. `runner(kit, check)` runs it."""
    for check in checks:

        def test(self: Kit, check: Callable[..., None] = check) -> None:
            __tracebackhide__ = True
            runner(self, check)

        test.__name__ = f"test_{check.__name__}"
        test.__qualname__ = f"{kit.__qualname__}.{test.__name__}"
        test.__doc__ = check.__doc__
        test.check = check  # type: ignore[attr-defined]
        test.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # no fixture is called `check`
            [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        )
        setattr(kit, test.__name__, test)
