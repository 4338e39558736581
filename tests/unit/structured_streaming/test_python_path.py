"""From where the processes that Spark starts for us take Spark's own modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceflow.structured_streaming.python_path import STARTUP, startup_sent_along, this_python


def installed_pyspark(folder: Path) -> Path:
    package = folder / "site-packages" / "pyspark"
    for inside in ("python/lib", "jars"):
        (package / inside).mkdir(parents=True)
    (package / "worker.py").touch()
    return package


def started(program: str, *path: str) -> tuple[list[str], str]:
    """What a process with this PYTHONPATH says, in lines, and what it complains of."""
    own = str(Path(STARTUP).parents[2])
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, own])},
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.splitlines(), said.stderr


def test_a_process_takes_spark_from_the_package_before_it_imports_anything(tmp_path: Path) -> None:
    import pyspark

    archive = str(Path(pyspark.__file__).parent / "python/lib/pyspark.zip")
    program = "import os, sys; print(os.environ['PYTHONPATH'], *sys.path, sep='\\n')"
    (inherited, *path), complaints = started(program, archive, STARTUP, str(tmp_path))
    assert not complaints
    assert archive not in path
    assert str(Path(pyspark.__file__).parents[1]) in path
    assert str(tmp_path) in path
    assert STARTUP not in path
    assert inherited.split(os.pathsep)[:2] == [archive, str(tmp_path)]


def test_another_pyspark_in_the_path_is_not_taken_for_that_of_the_archives(tmp_path: Path) -> None:
    archive = str(installed_pyspark(tmp_path) / "python/lib/pyspark.zip")  # the tests' own comes before it
    said, complaints = started("import sys; print(*sys.path, sep='\\n')", archive, STARTUP)
    assert not complaints
    assert archive in said


def test_the_sitecustomize_of_the_installation_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('here')")
    program = "import sitecustomize; print(sitecustomize.__file__)"
    said, complaints = started(program, STARTUP, str(tmp_path))
    assert not complaints
    assert said == ["here", str(tmp_path / "sitecustomize.py")]


def test_a_sitecustomize_that_fails_fails_as_it_did(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import nowhere_to_be_found")
    _, complaints = started("", STARTUP, str(tmp_path))
    assert "nowhere_to_be_found" in complaints
    assert "KeyError" not in complaints


def test_the_environment_is_another_one_only_while_the_source_is_registered() -> None:
    bare: dict[str, str] = {}
    with startup_sent_along(bare):
        assert bare == {"PYTHONPATH": STARTUP}
    assert bare == {}
    own = {"PYTHONPATH": "/jobs"}
    with startup_sent_along(own):
        assert own == {"PYTHONPATH": os.pathsep.join([STARTUP, "/jobs"])}
    assert own == {"PYTHONPATH": "/jobs"}


class Context:
    """The part of a SparkContext that says which Python it starts."""

    pythonExec = "python3"

    def __init__(self, master: str, **conf: str) -> None:
        self.master = master
        self._conf = conf

    def getConf(self) -> dict[str, str]:
        return {name.replace("_", "."): value for name, value in self._conf.items()}


@pytest.mark.parametrize(
    ("context", "environment", "taken"),
    [
        (Context("local[2]"), {}, sys.executable),
        (Context("local"), {}, sys.executable),
        (Context("local[2]"), {"PYSPARK_PYTHON": "/mine"}, "python3"),
        (Context("local[2]", spark_pyspark_python="/mine"), {}, "python3"),
        (Context("local-cluster[1,1,512]"), {}, "python3"),
        (Context("spark://host:7077"), {}, "python3"),
    ],
)
def test_where_nobody_chose_a_python_it_is_the_programs(
    context: Context, environment: dict[str, str], taken: str
) -> None:
    with this_python(context, environment):
        assert context.pythonExec == taken
    assert context.pythonExec == "python3"
