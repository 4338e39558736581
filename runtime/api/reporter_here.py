"""Who is told how a run goes that was given no reporter."""

from __future__ import annotations

import sys

from onceflow.runtime.report import Reporter, Silent


def reporter_here() -> Reporter:
    """For a run that was given none: the display of the notebook's cell that it runs in; else nobody is told.
    IPython is not imported for this: a notebook has done so."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:  # a shell on a terminal has none, and is left alone
        return Silent()
    # Here and not above: it imports Rich.
    from onceflow.runtime.api.notebook_display import NotebookDisplay

    return NotebookDisplay(sys.modules["IPython.display"].display)
