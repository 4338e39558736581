"""Places: which files are there, on a file system of this machine and on another."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import pytest

from onceflow.connectors.files.place import Place
from onceflow.runtime.errors import OptionError


def test_a_folder_a_pattern_and_a_file(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.txt", ".hidden.csv", "_half.csv", "sub/d.csv", "sub/.e/f.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")

    def found(url: str) -> list[str]:
        return [Path(path).relative_to(tmp_path).as_posix() for path in Place(url).files()]

    assert found(str(tmp_path)) == ["a.csv", "b.csv", "c.txt"]
    assert found(f"{tmp_path}/*.csv") == ["a.csv", "b.csv"]
    assert found(f"{tmp_path}/**/*.csv") == ["a.csv", "b.csv", "sub/d.csv"]
    assert found(f"{tmp_path}/sub/.e/*.csv") == ["sub/.e/f.csv"], "a folder that is named is meant"
    assert found(f"{tmp_path}/_half.csv") == []
    assert found(f"file://{tmp_path}/a.csv") == ["a.csv"]
    assert found(f"{tmp_path}/none") == []


def test_a_path_is_made_absolute_and_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = Place("in/*.csv")
    monkeypatch.chdir("/")
    assert place.url == f"{tmp_path}/in/*.csv"
    assert place.is_local
    assert pickle.loads(pickle.dumps(place)).path == place.path


def test_another_file_system_is_known_by_its_name() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe("/test-place/a.csv", b"one")
    place = Place("memory://test-place/*.csv")
    assert not place.is_local
    ((path, version),) = place.files().items()
    assert (path, version.size) == ("/test-place/a.csv", 3)
    assert place.version(path) == version
    assert place.open(path).read() == b"one"
    fs.pipe("/test-place/a.csv", b"two")
    assert place.version(path) != version
    fs.rm("/test-place", recursive=True)
    assert place.version(path) is None


@pytest.mark.parametrize(
    ("url", "sentence"), [("", "'' is not a place for files"), ("nowhere://x", "nowhere://x: .*nowhere")]
)
def test_what_is_no_place(url: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        Place(url).files()
