"""What a peer needs to run: an environment and jars of its own, made once and kept in the user's cache.

Nothing of a peer gets into the environment of onceflow. Python packages come from PyPI by pip, jars
from Maven Central by the Ivy jar that PySpark brings, Java sources are compiled by the JDK's javac.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from onceflow.connectors.kafka.embedded.jars import MAVEN_CENTRAL, default_cache_dir
from onceflow.runtime.environment.java import find_java
from onceflow.runtime.errors import UsageError

_INSTALL_TIMEOUT_S = 1_500.0


class Unavailable(Exception):
    """This peer can't be installed or run on this machine: says why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What to install, each with its exact version. Two peers may share one by its name."""

    name: str
    packages: tuple[str, ...] = ()
    """For pip: `quixstreams==3.28.1`."""
    jars: tuple[str, ...] = ()
    """`org:name:version`, with everything they depend on."""
    jars_alone: tuple[str, ...] = ()
    """The same, without."""


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment that is there."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def jars(self) -> list[Path]:
        return sorted((self.folder / "jars").glob("*.jar"))

    def package_jars(self, pattern: str) -> list[Path]:
        """Jars inside the installed Python packages, as `pyflink/lib/*.jar`."""
        return sorted((self.folder / "venv" / "lib").glob(f"python*/site-packages/{pattern}"))


def cache_dir() -> Path:
    """Where the environments are kept. It may be deleted at any time: the next call makes them anew."""
    return default_cache_dir() / "peers"


def install(environment: Environment, say: Callable[[str], None]) -> Installed:
    """The environment, made if it is not there. `say` is told what takes long. Raises Unavailable.

    A folder counts only with the mark that is written last, which names all that is in it: one that
    was cut short or has other versions is made anew.
    """
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f"{environment.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two at once would delete each other's
        return _installed(environment, say)


def _installed(environment: Environment, say: Callable[[str], None]) -> Installed:
    folder = cache_dir() / environment.name
    mark = folder / "complete"
    wanted = hashlib.sha256(f"{environment} {sys.version_info[:2]}".encode()).hexdigest()
    if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
        return Installed(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if environment.packages:
        say(f"installing {' '.join(environment.packages)} (once)")
        _run([sys.executable, "-m", "venv", str(folder / "venv")])
        pip = [str(Installed(folder).python), "-m", "pip", "install", "--quiet", *environment.packages]
        _run(pip)
    if environment.jars or environment.jars_alone:
        say(f"fetching {' '.join(environment.jars + environment.jars_alone)} (once)")
        _fetch_jars(environment, folder / "jars")
    mark.write_text(wanted, encoding="utf-8")
    return Installed(folder)


def compile_java(sources: list[Path], jars: list[Path], name: str) -> Path:
    """The folder of the compiled classes; compiled again only if a source or a jar has changed."""
    javac = find_java().executable.resolve().with_name("javac")
    compiler = str(javac) if javac.exists() else shutil.which("javac")
    if compiler is None:
        raise Unavailable("javac is missing: install a JDK, not only a JRE")
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources))
    digest.update("".join(jar.name for jar in jars).encode())
    folder = cache_dir() / "classes" / f"{name}-{digest.hexdigest()[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            out = Path(scratch) / "out"
            out.mkdir()
            _run([compiler, "-nowarn", "-d", str(out), "-cp", class_path(jars), *map(str, sources)])
            os.rename(out, folder)
    return folder


def class_path(jars: list[Path]) -> str:
    return os.pathsep.join(map(str, jars))


def _fetch_jars(environment: Environment, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ivy-") as name:
        scratch = Path(name)
        mirror = os.environ.get("ONCEFLOW_MAVEN_MIRROR", MAVEN_CENTRAL)
        settings = scratch / "settings.xml"
        settings.write_text(
            "<ivysettings><settings defaultResolver='maven'/><resolvers>"
            f"<ibiblio name='maven' m2compatible='true' root={quoteattr(mirror)}/>"
            "</resolvers></ivysettings>",
            encoding="utf-8",
        )
        module = scratch / "ivy.xml"
        module.write_text(ivy_module(environment), encoding="utf-8")
        command = [str(find_java().executable), f"-Duser.home={scratch}", "-cp", str(_ivy_jar())]
        command += ["org.apache.ivy.Main", "-settings", str(settings), "-ivy", str(module)]
        command += ["-cache", str(scratch / "cache"), "-confs", "default", "-types", "jar", "bundle"]
        command += ["-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"]
        _run(command)


def ivy_module(environment: Environment) -> str:
    """What Ivy is asked for, as its own XML."""
    dependencies = [
        "<dependency org={} name={} rev={} transitive='{}' conf='default->default'/>".format(
            *map(quoteattr, coordinates.split(":")), "true" if follow else "false"
        )
        for follow, group in ((True, environment.jars), (False, environment.jars_alone))
        for coordinates in group
    ]
    return (
        "<ivy-module version='2.0'><info organisation='onceflow' module='peer'/>"
        "<configurations><conf name='default'/></configurations>"
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return max(jar for folder in folders for jar in Path(folder).glob("jars/ivy-*.jar"))


def _run(command: list[str]) -> None:
    """Raises Unavailable with the last line that looks like a reason."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False
        )
    except (subprocess.TimeoutExpired, OSError, UsageError) as error:
        raise Unavailable(str(error)) from None
    if done.returncode != 0:
        raise Unavailable(f"{Path(command[0]).name} failed: {reason_in(done.stdout + done.stderr)}")


def reason_in(text: str) -> str:
    """The line of a program's output that most likely says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if "ERROR" in line or "error:" in line or "Exception" in line]
    return (marked or lines or ["no output"])[-1][:300]
