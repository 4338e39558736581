"""Which archive of Spark's classes belongs to which Spark and Java, and what a failed making leaves."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

from onceflow.runtime.environment.java import Java
from onceflow.runtime.hosts.spark.class_archive import (
    LOCAL_JAVA_OPTIONS,
    ArchiveError,
    _stem,
    archive_options,
    as_setting,
    find_archive,
    local_java_options,
    make_archive,
    spark_home,
)

JAVA = Java(Path("/usr/bin/java"), "17.0.15")


@pytest.fixture(autouse=True)
def own_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    for name in ("core.jar", "sql.jar"):
        (home / "jars" / name).write_bytes(b"classes")
    monkeypatch.setenv("SPARK_HOME", str(home))
    return home


def archive_for(java: Java) -> Path:
    """A file with the name that an archive for this Java and Spark has."""
    stem = _stem(java)
    assert stem is not None
    stem.parent.mkdir(parents=True, exist_ok=True)
    archive = stem.with_name(f"{stem.name}.7.jsa")
    archive.write_bytes(b"classes")
    return archive


def test_each_spark_and_each_java_has_an_archive_of_its_own(
    spark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archives: list[Path] = []

    def add(java: Java = JAVA) -> None:
        assert find_archive(java) is None
        archives.append(archive_for(java))
        assert find_archive(java) == archives[-1]

    add()
    add(Java(JAVA.executable, "17.0.16"))
    add(Java(Path("/opt/java"), "17.0.15"))
    (spark / "jars" / "sql.jar").write_bytes(b"other classes")
    add()
    os.utime(spark / "jars" / "sql.jar", ns=(1, 1))
    add()
    (spark / "jars" / "more.jar").write_bytes(b"")
    add()
    other = spark.with_name("other")
    shutil.copytree(spark, other)
    monkeypatch.setenv("SPARK_HOME", str(other))
    add()
    assert len(set(archives)) == 7


def test_only_a_whole_archive_gives_the_jvm_options(spark: Path) -> None:
    assert archive_options(JAVA) == ()
    assert local_java_options(JAVA) == LOCAL_JAVA_OPTIONS
    archive = archive_for(JAVA)
    assert f"-XX:SharedArchiveFile={archive}" in local_java_options(JAVA)
    for content in (b"class", b"", b"classes and more"):
        archive.write_bytes(content)
        assert archive_options(JAVA) == ()


def test_without_a_spark_there_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert find_archive(JAVA) is None
    assert archive_options(JAVA) == ()
    with pytest.raises(ArchiveError, match="no Spark"):
        make_archive(JAVA)


def test_options_survive_being_split_as_a_shell_would() -> None:
    options = ["-XX:+UseSerialGC", "-Da=with space", '-Db=q"uote', "-Dc=back\\slash", "-Dd=it's"]
    assert shlex.split(as_setting(options)) == options
    assert as_setting(options[:1]) == options[0]


def test_a_making_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that writes a part of the archive, and dies."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert spark_home() is not None
    java = Java(tmp_path / "bin" / "java", "17.0.15")
    java.executable.parent.mkdir()
    java.executable.write_text("#!/bin/sh\necho part > part.jsa\necho no memory >&2\nexit 3\n")
    java.executable.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ArchiveError, match=r"can't be archived: .*JAVA_GATEWAY_EXITED"):
        make_archive(java)
    stem = _stem(java)
    assert stem is not None
    assert list(stem.parent.iterdir()) == []
    assert archive_options(java) == ()
