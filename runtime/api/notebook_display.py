"""NotebookDisplay: how a job that runs in a cell of a notebook is shown below it, drawn anew each second."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from onceflow.runtime.contracts import Json
from onceflow.runtime.live_text import event_text, progress_texts
from onceflow.runtime.report import JobProgress

EVENTS_MAX = 20
"""How many of the latest events are shown."""
_COLUMNS = 400
"""Wider than any line: the page wraps, and not the text."""
_PAGE = "<pre style='white-space:pre-wrap'>{code}</pre>"


class NotebookDisplay:
    """A Reporter: the line of the terminal and the latest events, as one output of the cell.

    Called on the thread of the cell, which is what makes the output that cell's. `display`: IPython's, of the
    notebook that has imported it; onceflow needs it nowhere else.
    """

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._events: deque[Text] = deque(maxlen=EVENTS_MAX)
        self._now: list[Text] = []
        self._handle: Any = None

    def event(self, name: str, fields: Mapping[str, Json]) -> None:
        if name == "job_finished":
            self._now = []
        text = event_text(name, fields)
        if text is not None:
            self._events.append(Text.assemble((f"{datetime.now():%H:%M:%S} ", "dim"), text))
            self._draw()

    def progress(self, progress: JobProgress) -> None:
        if progress.phase != "over":
            self._now = progress_texts(progress)
            self._draw()

    def close(self) -> None:
        """What happened stays below the cell."""
        self._now = []
        self._draw()

    def _draw(self) -> None:
        texts = [*self._events, *self._now]
        page = {"text/html": as_html(texts), "text/plain": "\n".join(text.plain for text in texts)}
        if self._handle is None:
            self._handle = self._display(page, raw=True, display_id=True)
        else:
            self._handle.update(page, raw=True)


def as_html(texts: list[Text]) -> str:
    """Escaped, with styles of its own: a notebook's page has no style sheet of ours."""
    console = Console(file=io.StringIO(), record=True, width=_COLUMNS, force_jupyter=False)
    for text in texts:
        console.print(text, soft_wrap=True)
    return console.export_html(
        inline_styles=True, code_format="<pre style='white-space:pre-wrap'>{code}</pre>"
    )
