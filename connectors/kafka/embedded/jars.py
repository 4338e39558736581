"""The jars of the embedded Kafka: pinned by SHA-256, fetched once by the Ivy jar that PySpark brings.

They are kept in the user's cache folder, one folder per version. A folder is there whole or not at
all: it is downloaded and checked next to its place and then renamed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from xml.sax.saxutils import quoteattr

import platformdirs

from onceflow.runtime.environment.java import Java
from onceflow.runtime.errors import OnceflowError, UsageError

PINNED_VERSION = "4.2.1"
"""The Kafka to embed. 4.3.0 to 4.4.0 lose transaction markers when killed (KAFKA-20734)."""

MAVEN_CENTRAL = "https://repo1.maven.org/maven2/"
_FETCH_TIMEOUT_S = 600.0
_IVY_MAVEN = "http://ant.apache.org/ivy/maven"


class FetchError(OnceflowError):
    """The jars could not be downloaded, or are not the pinned ones. Nothing was kept."""


def default_cache_dir() -> Path:
    return platformdirs.user_cache_path("onceflow", appauthor=False)


def pinned_jars(version: str) -> Mapping[str, str]:
    """`org:name:version` to SHA-256 of each jar of this Kafka. UsageError for a version not pinned."""
    text = resources.files("onceflow.connectors.kafka.embedded").joinpath("pins.json").read_text("utf-8")
    pins: dict[str, dict[str, str]] = json.loads(text)
    if version not in pins:
        raise UsageError(f"Kafka {version} is not pinned for embedding: use one of {', '.join(pins)}")
    return pins[version]


@dataclass(frozen=True, slots=True)
class JarCache:
    """Where the jars are kept and where they come from: a Maven repository's root URL."""

    folder: Path = field(default_factory=default_cache_dir)
    maven_mirror: str = MAVEN_CENTRAL

    def has(self, version: str) -> bool:
        """Whether a start needs no download (a damaged folder will, all the same)."""
        return self._folder_of(f"kafka-{version}", pinned_jars(version)).is_dir()

    def jars(self, version: str, java: Java) -> list[Path]:
        """The class path of this Kafka, in a fixed order; fetched if the cache lacks it.

        Safe to call from several processes at once: the first whole folder stays. FetchError if
        the download fails or a jar is not the pinned one; calling again starts afresh.
        """
        return self.jars_of(f"kafka-{version}", pinned_jars(version), java)

    def jars_of(self, name: str, pins: Mapping[str, str], java: Java) -> list[Path]:
        """The same for any program that is made of pinned jars."""
        folder = self._folder_of(name, pins)
        if folder.is_dir() and _first_damaged(pins, folder) is not None:  # 50 ms; cheaper than a riddle
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.is_dir():
            self._fetch(pins, folder, name, java)
        return [folder / _file_name(coordinates) for coordinates in pins]

    def _folder_of(self, name: str, pins: Mapping[str, str]) -> Path:
        """Named after the pins too, so that new pins never meet an old folder."""
        digest = hashlib.sha256(json.dumps(pins, sort_keys=True).encode()).hexdigest()[:8]
        return self.folder / f"{name}-{digest}"

    def _fetch(self, pins: Mapping[str, str], folder: Path, name: str, java: Java) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"fetch-{name}-", dir=self.folder) as scratch:
            downloaded = Path(scratch) / "jars"
            downloaded.mkdir()
            _run_ivy(pins, downloaded, Path(scratch), self.maven_mirror, java)
            damaged = _first_damaged(pins, downloaded)
            if damaged is not None:
                raise FetchError(
                    f"{damaged} from {self.maven_mirror} is not the pinned file (absent, or another hash): "
                    "nothing was kept; try again, or name another mirror in ONCEFLOW_MAVEN_MIRROR"
                )
            try:
                os.rename(downloaded, folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster, with the same jars
                    raise


def _run_ivy(pins: Mapping[str, str], target: Path, scratch: Path, maven_mirror: str, java: Java) -> None:
    settings = scratch / "settings.xml"
    settings.write_text(
        "<ivysettings><settings defaultResolver='maven'/><resolvers>"
        f"<ibiblio name='maven' m2compatible='true' usepoms='false' root={quoteattr(maven_mirror)}/>"
        "</resolvers></ivysettings>",
        encoding="utf-8",
    )
    module = scratch / "ivy.xml"
    module.write_text(_ivy_module(pins), encoding="utf-8")
    command = [str(java.executable), f"-Duser.home={scratch}", "-cp", str(_ivy_jar()), "org.apache.ivy.Main"]
    command += ["-settings", str(settings), "-ivy", str(module), "-cache", str(scratch / "cache")]
    command += ["-confs", "default", "-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise FetchError(
            f"the jars did not arrive from {maven_mirror} within {_FETCH_TIMEOUT_S:.0f} s: try again"
        ) from None
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()
        reasons = [line.strip() for line in lines if "WARN" in line or "rror" in line or "xception" in line]
        reason = next((line for line in reasons if "not found" not in line), "unknown")
        raise FetchError(
            f"the jars can't be fetched from {maven_mirror} ({reason}): check the network, or name a "
            "Maven mirror in ONCEFLOW_MAVEN_MIRROR, and try again"
        )


def _ivy_module(pins: Mapping[str, str]) -> str:
    """All jars by name, none by following POMs: what is fetched is what is pinned."""
    return (
        f"<ivy-module version='2.0' xmlns:m={quoteattr(_IVY_MAVEN)}>"
        "<info organisation='onceflow' module='pinned-jars'/>"
        "<configurations><conf name='default'/></configurations>"
        f"<dependencies>{''.join(map(_ivy_dependency, pins))}</dependencies></ivy-module>"
    )


def _ivy_dependency(coordinates: str) -> str:
    org, name, version, *classifier = map(quoteattr, coordinates.split(":"))
    artifact = f"<artifact name={name} type='jar' m:classifier={classifier[0]}/>" if classifier else ""
    return (
        f"<dependency org={org} name={name} rev={version} transitive='false' conf='default->default'>"
        f"{artifact}</dependency>"
    )


def _first_damaged(pins: Mapping[str, str], folder: Path) -> str | None:
    for coordinates, sha256 in pins.items():
        jar = folder / _file_name(coordinates)
        if not jar.is_file() or hashlib.sha256(jar.read_bytes()).hexdigest() != sha256:
            return coordinates
    return None


def _ivy_jar() -> Path:
    """PySpark's own Ivy, found without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    folders = list(spec.submodule_search_locations or []) if spec else []
    jars = sorted(jar for folder in folders for jar in Path(folder).glob("jars/ivy-*.jar"))
    if not jars:
        raise FetchError("PySpark's Ivy jar is missing: run 'pip install --force-reinstall pyspark'")
    return jars[-1]


def _file_name(coordinates: str) -> str:
    """The file of a jar: coordinates are `org:name:version`, with a fourth part for a classifier."""
    return "-".join(coordinates.split(":")[1:]) + ".jar"
