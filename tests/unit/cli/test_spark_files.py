"""--archives and --py-files: what Spark is told, and what can be imported here."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceflow.cli.spark_files import let_import, with_files
from onceflow.runtime.errors import OptionError

MASTER = "spark://master:7077"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder; in it two modules side by side, a zip of a package, and an archive."""
    monkeypatch.chdir(tmp_path)
    for name in ("spark_files_rates", "spark_files_beside"):
        (tmp_path / f"{name}.py").write_text("VALUE = 7\n")
    with zipfile.ZipFile(tmp_path / "shop.zip", "w") as shop:
        shop.writestr("spark_files_shop/__init__.py", "VALUE = 8\n")
    (tmp_path / "environment.tar.gz").touch()
    path, finders = list(sys.path), list(sys.meta_path)
    yield tmp_path
    sys.path[:] = path
    for finder in [finder for finder in sys.meta_path if finder not in finders]:
        sys.meta_path.remove(finder)
    for name in [name for name in sys.modules if name.startswith("spark_files_")]:
        del sys.modules[name]


def test_both_become_sparks_settings_with_whole_paths_and_urls_as_they_are(folder: Path) -> None:
    archives = "environment.tar.gz#environment,hdfs://name/other.zip"
    found = with_files({"spark.a": "b"}, MASTER, archives, "spark_files_rates.py,shop.zip")
    assert found == {
        "spark.a": "b",
        "spark.archives": f"{folder}/environment.tar.gz#environment,hdfs://name/other.zip",
        "spark.submit.pyFiles": f"{folder}/spark_files_rates.py,{folder}/shop.zip",
    }
    assert with_files({"spark.a": "b"}, "threads[2]", None, None) == {"spark.a": "b"}


@pytest.mark.parametrize(
    ("settings", "master", "archives", "py_files", "told"),
    [
        ({}, MASTER, "enviroment.tar.gz#e", None, "(did you mean 'environment.tar.gz'?)"),
        ({}, MASTER, "none/a.tar.gz", None, "there is no file none/a.tar.gz"),
        ({}, MASTER, None, "a.whl", "there is no file a.whl"),
        ({}, MASTER, None, "environment.tar.gz", "Spark takes .zip, .egg, .py"),
        ({"spark.archives": "x"}, MASTER, "environment.tar.gz", None, "say the same: give one of them"),
        ({}, "threads[2]", None, "shop.zip", "they are threads of this process: leave it out"),
    ],
)
def test_what_spark_could_not_take_is_refused(
    folder: Path, settings: dict[str, str], master: str, archives: str | None, py_files: str | None, told: str
) -> None:
    with pytest.raises(OptionError) as refused:
        with_files(settings, master, archives, py_files)
    assert told in str(refused.value)


def test_what_slots_get_can_be_imported_here_and_not_what_lies_beside_it(folder: Path) -> None:
    let_import(with_files({}, MASTER, None, "spark_files_rates.py,shop.zip"))
    assert importlib.import_module("spark_files_rates").VALUE == 7
    assert importlib.import_module("spark_files_shop").VALUE == 8
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("spark_files_beside")
