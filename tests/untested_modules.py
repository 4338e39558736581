"""Which modules nobody tests: the judge of `covered_elsewhere.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.covered import Covered


def untested(modules: set[str], tests: set[str], covered: Sequence[Covered]) -> list[str]:
    """What is wrong with these tests for these modules, both named by their paths with dots for slashes: a
    module without a test of its name (in the folder of its name, where several modules share theirs) and
    without a word on who covers it, or a word that is not true."""
    shared = Counter(module.rpartition(".")[2] for module in modules)
    named = {test.rpartition(".")[2] for test in tests}
    placed = {".".join(test.split(".")[-2:]) for test in tests}
    left = set()
    for module in modules:
        folder, _, name = module.rpartition(".")
        room = "unit" if folder == "runtime" else folder.rpartition(".")[2]
        place = f"{room}.test_{name}"
        if place not in placed and (shared[name] > 1 or f"test_{name}" not in named):
            left.add(module)
    wrong = []
    for entry in covered:
        wrong += [
            f"no such test: {test}" for test in entry.tests.split() if test.replace("/", ".") not in tests
        ]
        for name in entry.modules.split():
            found = [module for module in modules if f".{module}".endswith(f".{name}")]
            if len(found) != 1:
                wrong.append(f"{len(found)} modules are called {name}")
            elif found[0] not in left:
                wrong.append(f"{name} has a test of its name, or two entries")
            left.difference_update(found)
    return [*wrong, *(f"nobody says who tests {module}" for module in sorted(left))]
