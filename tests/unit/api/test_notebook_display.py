"""Jobs that run in the cells of a notebook: a real kernel runs them, and what it would show is read."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager
from rich.text import Text

from onceflow.runtime.api.notebook_display import EVENTS_MAX, NotebookDisplay, as_html

LIMIT_S = 120.0
BOUNDED = """
from onceflow import Job
job = Job("cells")
rows = job.from_elements(1, 2, 3).collect()
result = job.run(master="threads[1]")
"""
ENDLESS = """
from dataclasses import dataclass
from onceflow import Job
@dataclass
class Row:
    n: int
job = Job("endless")
job.data_generator(Row, rate="1000/s").foreach(lambda row: None)
print(job.run(master="threads[1]", checkpoint_interval="100 ms").outcome.value)
"""


class Notebook:
    """A kernel, and the outputs of the cell that runs in it, as a page would hold them."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager = manager
        self._client = client
        self.displays: dict[str, dict[str, str]] = {}
        self.drawn = 0
        self.said = ""

    def start(self, cell: str) -> str:
        self.displays.clear()
        self.said = ""
        return self._client.execute(cell)

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def read(self, cell: str, until: str | None = None) -> None:
        """Wait until a display has this text, or to the cell's end."""
        deadline = time.monotonic() + LIMIT_S
        while until is None or not any(until in page["text/plain"] for page in self.displays.values()):
            assert time.monotonic() < deadline, f"{self.said}\n{self.displays}"
            try:
                message = self._client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") == cell and self._take(message):
                assert until is None, f"the cell is over\n{self.said}\n{self.displays}"
                return

    def _take(self, message: dict[str, Any]) -> bool:
        """True at the cell's end."""
        content = message["content"]
        if message["msg_type"] in ("display_data", "update_display_data"):
            self.displays[content["transient"]["display_id"]] = content["data"]
            self.drawn += 1
        elif message["msg_type"] == "stream":
            self.said += content["text"]
        elif message["msg_type"] == "error":
            self.said += "\n".join(content["traceback"])
        return message["msg_type"] == "status" and content["execution_state"] == "idle"


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    manager = KernelManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=LIMIT_S)
        yield Notebook(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_run_is_one_output_of_its_cell_and_ends_with_how_it_ended(notebook: Notebook) -> None:
    notebook.read(notebook.start(BOUNDED))
    assert notebook.said == ""
    (page,) = notebook.displays.values()
    assert "cells starts on threads[1]" in page["text/plain"]
    assert "finished: " in page["text/plain"].splitlines()[-1]
    assert "<span style=" in page["text/html"], "in colours of its own"


def test_interrupting_the_kernel_stops_the_job_after_a_last_checkpoint(notebook: Notebook) -> None:
    cell = notebook.start(ENDLESS)
    notebook.read(cell, until="checkpoint 1")
    notebook.interrupt()
    notebook.read(cell)
    (page,) = notebook.displays.values()
    assert "stopped: on request, after a last checkpoint" in page["text/plain"].splitlines()[-1]
    assert notebook.said == "stopped\n"


def test_texts_are_escaped() -> None:
    assert "&lt;b&gt;" in as_html([Text("a <b> c")])


def test_the_latest_events_are_kept() -> None:
    pages: list[dict[str, str]] = []
    display = NotebookDisplay(lambda page, **_: SimpleNamespace(update=lambda page, **_: pages.append(page)))
    for number in range(EVENTS_MAX + 5):
        display.event("warning", {"reason": f"number {number}."})
    display.event("first_record", {"attempt": 1})  # for programs only
    shown = pages[-1]["text/plain"].splitlines()
    assert len(pages) == EVENTS_MAX + 4
    assert len(shown) == EVENTS_MAX
    assert shown[-1].endswith(f"number {EVENTS_MAX + 4}.")
