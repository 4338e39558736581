"""Where the checkpoints of a job are that is run without a checkpoint folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from onceflow.runtime.arguments import PathText, path_text
from onceflow.runtime.errors import OptionError

_ON_THIS_MACHINE = re.compile(r"(?:threads|local)(?:\[.*\])?")


@contextmanager
def checkpoint_folder(given: PathText | None, master: str) -> Iterator[str]:
    """The folder that was given, or a temporary one."""
    if given is not None:
        yield path_text(given)
        return
    if not _ON_THIS_MACHINE.fullmatch(master):
        raise OptionError(
            "without checkpoint_dir the checkpoints are in a temporary folder of this machine, and slots on "
            f'{master} may not see it: give a folder that all machines share, as in job.run("/shared/totals")'
        )
    with TemporaryDirectory(prefix="onceflow-", ignore_cleanup_errors=True) as folder:
        yield folder
