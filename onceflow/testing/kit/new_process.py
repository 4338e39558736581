"""The program of processes that know nothing of the test's: `python -m onceflow.testing.kit.new_process`.

It imports the kit's module once, and is then forked for each thing to do, so that a new process costs
milliseconds. One JSON object a line comes in and goes out; see `processes.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

HANGS_AFTER_S = 120
"""A process that takes so long is ended, and told of."""


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # what a connector prints is no answer
    about = json.loads(sys.stdin.readline())
    sys.path[:] = about["path"]
    kit: Any = module_of(about["module"], about["file"])
    for name in about["kit"].split("."):
        kit = getattr(kit, name)
    for line in sys.stdin:
        os.write(answers, (json.dumps(in_a_fork(kit, json.loads(line))) + "\n").encode())


def module_of(name: str, file: str) -> ModuleType:
    """The module by its name, or if that leads elsewhere by its file."""
    try:
        found = importlib.import_module(name) if name != "__main__" else None
    except ImportError:
        found = None
    if found is not None and found.__file__ and Path(found.__file__).samefile(file):
        return found
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None, file
    assert spec.loader is not None, file
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def in_a_fork(kit: Any, task: dict[str, Any]) -> dict[str, Any]:
    """What came of the task: its `exit` code, and its `result` or its `error` if there is one."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        do(kit, task, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    return {"exit": os.waitstatus_to_exitcode(status), **(json.loads(said) if said else {})}


def do(kit: Any, task: dict[str, Any], writing: int) -> NoReturn:
    """One task on a kit of this process, which ends then."""
    signal.alarm(HANGS_AFTER_S)
    try:
        its = kit()
        its.settings.update(task["settings"])
        its.folder = task["folder"]
        said = {"result": its.do_in_new_process(task["scenario"], task["arguments"])}
    except BaseException as error:
        said = {"error": f"{type(error).__name__}: {error}"}
    with os.fdopen(writing, "w") as pipe:
        pipe.write(json.dumps(said))
    os._exit(0)


if __name__ == "__main__":
    main()
