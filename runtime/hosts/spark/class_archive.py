"""Spark's classes, read and checked ahead: an archive that a local Spark's JVM maps instead of reading jars.

Starting Spark is mostly finding, parsing and verifying some ten thousand classes. Java can keep them in a
file (a dynamic CDS archive), which `onceflow prepare` makes when a machine or an image is set up. Nothing
rests on it: a JVM that finds the file absent, damaged or made for others loads its classes from the jars
as ever, and says nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import platformdirs

from onceflow.runtime.environment.java import Java
from onceflow.runtime.errors import OnceflowError

LOCAL_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java options for local masters, where the JVM schedules one stage and no record goes through it: starting
it takes half of the CPU without the compiler and the collector that are made for long work."""

_MAKING_TIMEOUT_S = 600.0
_HAS_AOT_TAG = 25
"""The first Java whose log of archives has the name `aot` too."""
_FOREIGN_SETTINGS = (
    "JDK_JAVA_OPTIONS",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_REMOTE",
    "SPARK_SUBMIT_OPTS",
)
"""Environment variables that would make of the workload's JVM another one than a job's."""


class ArchiveError(OnceflowError):
    """The archive can't be made. Jobs run without it."""


def local_java_options(java: Java) -> tuple[str, ...]:
    """What the JVM of a local Spark is started with: quick to start, with the archive if there is one."""
    return (*LOCAL_JAVA_OPTIONS, *archive_options(java))


def archive_options(java: Java) -> tuple[str, ...]:
    """JVM options to use the archive; none if there is no whole one for this Java and this Spark. A JVM that
    can't use the file (the class path is another one, or another collector) starts without it, silently."""
    archive = find_archive(java)
    return () if archive is None else _using(archive, java)


def as_setting(java_options: Iterable[str]) -> str:
    """The options in one text, as Spark's settings and SPARK_SUBMIT_OPTS want them: split as by a shell."""
    return " ".join(
        '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'
        if re.search(r"[\s\"'\\]", option)
        else option
        for option in java_options
    )


def find_archive(java: Java) -> Path | None:
    """The archive for this Java and this Spark, as they are installed now. None if there is none, or not all
    of it: a JVM that maps a file which was cut off dies of it. Takes a few milliseconds."""
    stem = _stem(java)
    for found in stem.parent.glob(f"{stem.name}.*.jsa") if stem is not None else ():
        with contextlib.suppress(OSError, ValueError):
            if found.stat().st_size == int(found.suffixes[-2][1:]):
                return found
    return None


def _stem(java: Java) -> Path | None:
    """The path of the archive's file without its size; None without a Spark."""
    home = spark_home()
    if home is None:
        return None
    place = hashlib.sha256(f"{home}\0{java.executable.resolve()}".encode()).hexdigest()
    content = hashlib.sha256()
    for jar in sorted((home / "jars").iterdir()):
        found = jar.stat()
        content.update(f"{jar.name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    made_of = f"pyspark-{metadata.version('pyspark')}-java-{java.version}-{content.hexdigest()[:8]}"
    return Path(platformdirs.user_cache_dir("onceflow")) / "classes" / f"{place[:8]}-{made_of}"


def spark_home() -> Path | None:
    """The Spark that PySpark would start; found without importing PySpark, which takes long."""
    named, found = os.environ.get("SPARK_HOME"), importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    home = Path(named) if named is not None else Path(found.origin).parent
    return home if (home / "jars").is_dir() else None


def make_archive(java: Java) -> Path:
    """Start a Spark, let it load what a job needs, and keep its classes: half a minute or so on two
    cores. The file is there whole or not at all; any number of processes may call this at once.

    Archives for earlier contents of the same Spark and Java are deleted; a JVM that has one mapped keeps
    it. Raises ArchiveError.
    """
    stem = _stem(java)
    if stem is None:
        raise ArchiveError("Spark's classes can't be archived: no Spark was found; install pyspark")
    stem.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=stem.parent) as folder:
        part = Path(folder) / "part.jsa"
        _run_workload(part, java)
        with part.open("rb") as written:
            os.fsync(written.fileno())  # or a power cut could leave the name and not the content
        archive = stem.with_name(f"{stem.name}.{part.stat().st_size}.jsa")
        os.replace(part, archive)
    for other in stem.parent.glob(f"{stem.name.split('-')[0]}-*.jsa"):
        if other != archive:
            other.unlink(missing_ok=True)
    return archive


def _run_workload(part: Path, java: Java) -> None:
    """In a process of its own, since a process has one Spark. Afterwards `part` exists and a JVM takes it."""
    options = [*LOCAL_JAVA_OPTIONS, f"-XX:ArchiveClassesAtExit={part}", *_silence(java)]
    environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN_SETTINGS}
    workload = [
        sys.executable,
        "-m",
        "onceflow.runtime.hosts.spark.class_workload",
        str(part.parent),
        *options,
    ]
    test = [str(java.executable), *_using(part, java), "-version"]
    for command in (workload, test):
        try:
            done = subprocess.run(
                command,
                cwd=part.parent,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=_MAKING_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise ArchiveError(
                f"Spark's classes can't be archived: not ready within {_MAKING_TIMEOUT_S:.0f} s; try again"
            ) from None
        if done.returncode != 0 or not part.exists():
            said = (done.stderr + done.stdout).strip().splitlines() or ["it wrote no archive"]
            raise ArchiveError(f"Spark's classes can't be archived: {said[-1].strip()[:300]}")


def _using(archive: Path, java: Java) -> tuple[str, ...]:
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *_silence(java))


def _silence(java: Java) -> tuple[str, ...]:
    """Options that keep a JVM which does not take the archive from saying so on standard output. A JVM that
    does not know a tag does not start, so the archive is made with the same options: then there is none."""
    major = int(re.split(r"\D", java.version)[0] or 0)
    tags = ("cds", "cds+dynamic", *(("aot",) if major >= _HAS_AOT_TAG else ()))
    return tuple(f"-Xlog:{tag}=off" for tag in tags)
