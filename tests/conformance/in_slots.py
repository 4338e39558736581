"""A slot's process for tests of what travels by value: it has never seen the user's file."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import onceflow

ROOT = Path(__file__).resolve().parents[2]

SLOT = """
import json, pathlib, sys
from onceflow.runtime.hosts.spark.shipping import unpack
name = sys.argv[3]
cases = unpack(pathlib.Path(sys.argv[1]).read_bytes())
ours = tuple(json.loads(sys.argv[2]))
looked = []
def watch(frame, event, argument):
    if event == "call" and frame.f_code.co_name in ("get_type_hints", "fields"):
        caller = frame.f_back.f_code.co_filename
        of = getattr(next(iter(frame.f_locals.values()), None), "__module__", "")
        if caller.startswith(ours) and of == name:
            looked.append(f"{frame.f_code.co_name} from {caller}:{frame.f_back.f_lineno}")
results = {}
for each, case in cases.items():
    sys.setprofile(watch)
    try:
        results[each] = repr(case())
    except BaseException as error:
        results[each] = f"{type(error).__name__}: {error}"
    finally:
        sys.setprofile(None)
assert not hasattr(sys.modules.get(name), "__file__")
print(json.dumps([results, looked]))
"""


def loaded(name: str, program: Path) -> ModuleType:
    """A program as `onceflow run FILE` loads it: under a name that can't be imported elsewhere."""
    spec = importlib.util.spec_from_file_location(name, program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def in_a_fresh_process(packed: bytes, name: str, folder: Path) -> tuple[dict[str, str], list[str]]:
    """What each case gives there, and where a class of the program `name` was looked into by our code."""
    (folder / "cases").write_bytes(packed)
    ours = [str(Path(module).resolve()) for module in onceflow.__path__]
    ours += [str(Path(ours[0], part).resolve()) for part in ("runtime", "connectors", "sinks")]
    done = subprocess.run(
        [sys.executable, "-c", SLOT, str(folder / "cases"), json.dumps(ours), name],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    results, looked = json.loads(done.stdout)
    return results, looked
