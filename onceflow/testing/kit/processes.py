"""Processes of a kit's own: one for each kit class, forked for each thing that has to be done elsewhere."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from typing import Any

from onceflow.runtime.errors import UsageError

KILLED = 137


class KitProcess:
    """The process from which those of a kit class are forked. Ends with this one, or when it is closed."""

    def __init__(self, kit: type) -> None:
        if "<locals>" in kit.__qualname__:
            raise UsageError(
                f"{kit.__qualname__} is defined in a function, where no other process finds it: define it at "
                "the top of its module, or say in_new_processes = False in it"
            )
        self._kit = kit
        command = [sys.executable, "-m", "onceflow.testing.kit.new_process"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        about = {"path": sys.path, "module": kit.__module__, "file": inspect.getfile(kit)}
        self._send({**about, "kit": kit.__qualname__})

    def run(self, task: dict[str, Any]) -> Any:
        """What the task gives; None if it has killed its process, as it was meant to."""
        self._send(task)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise UsageError(
                f"no new process could import {self._kit.__qualname__}: its standard error says why. Put "
                "what should not run there below `if __name__ == '__main__'`, or say in_new_processes = False"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise AssertionError(f"in a new process: {answer['error']}")
        if "result" in answer:
            return answer["result"]
        assert answer["exit"] == KILLED, f"a new process ended with {answer['exit']}, and not by the kill"
        return None

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _send(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
