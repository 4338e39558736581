"""What becomes of a run when a test takes its worker down, or holds it for ever."""

from __future__ import annotations

import faulthandler
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

GIVEN_UP_AFTER_S = 60.0
"""How long pytest-timeout's signal may take to end a test. Python sees a signal between two of its
instructions only, so a call of C or Rust code that never comes back is ended with its whole process."""


def import_share(folder: Path, number: int, count: int) -> list[str]:
    """Import each `count`th test module below the folder, beginning with the `number`th; returns their names.

    pytest rewrites the assertions of a module when it is first imported, and keeps the result. In a new copy
    of the repository this is two thirds of what collecting takes, and each worker would do all of it. What
    can't be imported here is told when it is collected.
    """
    mine = sorted(folder.rglob("test_*.py"))[number::count]
    names = [".".join(path.relative_to(folder.parent).with_suffix("").parts) for path in mine]
    for name in names:
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)
    return names


class RestOfFiles(LoadFileScheduling):
    """xdist's distribution by file, in which a run goes on when a worker dies.

    xdist 3.8 gives out again whatever the dead worker ever had. A file that is done is then an empty portion,
    and the worker that gets it waits for its next test for ever. The same holds for a worker that comes
    instead and gets one test only, since a worker begins a test when it knows the one after it.
    """

    def remove_node(self, node: Any) -> str | None:
        files = self.assigned_work[node]
        for file in [file for file, tests in files.items() if all(tests.values())]:
            del files[file]
        ran: str | None = super().remove_node(node)
        return ran

    def schedule(self) -> None:
        is_first = self.collection is None
        super().schedule()
        if not is_first and self.collection:
            for node in self.nodes:
                self._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return RestOfFiles(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Say at once how a worker ended: the summary, which says what it ran, may never be printed."""
    terminal = node.config.pluginmanager.getplugin("terminalreporter")
    if error is not None and terminal is not None:
        terminal.write_line(f"\n{node.gateway.id} ended with {node.gateway._io.wait()}")


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any, sched: Any) -> None:
    terminal = report.node.config.pluginmanager.getplugin("terminalreporter")
    if terminal is not None:
        terminal.write_line(f"{report.node.gateway.id} ran {crashitem}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    own = item.get_closest_marker("timeout")
    limit_s = own.args[0] if own is not None else item.config.getini("timeout")
    after_s = float(limit_s) + GIVEN_UP_AFTER_S
    end = threading.Timer(after_s, _end_process, (item,))
    end.daemon = True
    end.start()
    try:
        return (yield)
    finally:
        end.cancel()


def _end_process(item: pytest.Item) -> None:
    item.config.pluginmanager.getplugin("capturemanager").suspend_global_capture(in_=True)
    print(f"{item.nodeid} can't be ended; its process is", file=sys.__stderr__, flush=True)
    assert sys.__stderr__ is not None
    faulthandler.dump_traceback(sys.__stderr__)
    os._exit(1)
