"""Masters of a standalone cluster that do not answer: from what the driver's JVM logs meanwhile.

Spark itself looks for a minute, and then says that it was stopped, and nothing of a master.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable

from onceflow.runtime.errors import Fatal, OnceflowError, Unavailable

_SILENT = re.compile(r"Failed to connect to master (\S+)")


def _resolve(host: str) -> None:
    socket.getaddrinfo(host, None)


class MasterWatch:
    """One for each JVM. `hear` is called on the thread that reads the JVM's log, all else on others."""

    def __init__(self, resolve: Callable[[str], None] = _resolve) -> None:
        self._resolve = resolve
        self._why: dict[str, str] = {}
        """HOST:PORT of a master that did not answer -> why, as far as its name tells."""
        self._unknown: set[str] = set()

    def hear(self, line: str) -> None:
        """Take what a line of the log says, if it is about a master."""
        if (found := _SILENT.search(line)) and found[1] not in self._why:
            try:
                self._resolve(found[1].rpartition(":")[0])
            except OSError as error:
                if error.errno == socket.EAI_NONAME:  # others, as a name server that is away, may pass
                    self._unknown.add(found[1])
                self._why = {**self._why, found[1]: f" ({error.strerror or error})"}
            else:
                self._why = {**self._why, found[1]: ""}

    def check(self, master: str) -> None:
        """Unavailable if none of the masters in this address has a name that is known: Spark would look for
        them for a minute."""
        asked = master.removeprefix("spark://").split(",")
        if all(each in self._unknown for each in asked):
            raise self._unanswered(master)

    @property
    def waiting(self) -> str:
        """What to add to what the JVM does: which masters it has not reached yet. Empty: it has met none that
        did not answer."""
        return f" (no answer from the master at {self._silent()})" if self._why else ""

    def not_started(self, master: str, cause: str) -> OnceflowError:
        """Why there is no Spark, as one sentence. `cause`: what Spark itself says."""
        return self._unanswered(master) if self._why else Fatal(f"Spark did not start on {master}: {cause}")

    def _unanswered(self, master: str) -> Unavailable:
        return Unavailable(
            f"Spark did not start on {master}: no answer from the master at {self._silent()}; correct "
            "--master, or start the cluster"
        )

    def _silent(self) -> str:
        return " and ".join(f"{address}{why}" for address, why in self._why.items())
