"""Makes the data folder of a Kafka ready for its first start.

Kafka's own tool takes a JVM, and half a second. Of the two files that it writes `meta.properties` names the
node, and `bootstrap.checkpoint`, which holds the levels of the features, is the same for all nodes of a
version. So the second is kept beside the jars, and nodes with no settings but ours need no tool after that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onceflow.connectors.kafka.embedded.jars import JarCache
from onceflow.connectors.kafka.embedded.process import BrokerError, log_reason

_FEATURES = "bootstrap.checkpoint"


def random_id() -> str:
    """An id as Kafka makes them for clusters and folders: 22 letters of Base64, no dash first."""
    while (made := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


@dataclass(frozen=True, slots=True)
class Formatting:
    """What a node's folder is formatted with. `java`: a JVM without its main class; `settings`: the file
    server.properties. `has_own_settings`: with settings or `arguments` of the user's it is the tool that
    formats, for it looks at them."""

    version: str
    cluster_id: str
    node: int
    java: Sequence[str]
    settings: Path
    has_own_settings: bool = False
    arguments: tuple[str, ...] = ()


def format_folder(log_dir: Path, cache: JarCache, formatting: Formatting) -> None:
    """Format a folder that has no whole format yet; what is in it is removed.

    BrokerError with Kafka's reason. A crash leaves a folder without meta.properties, which comes last and
    is looked for by who asks whether a folder is formatted.
    """
    shutil.rmtree(log_dir, ignore_errors=True)
    kept = cache.folder / f"format-{formatting.version}.checkpoint"
    is_plain = not formatting.has_own_settings and not formatting.arguments
    if is_plain and kept.exists():
        log_dir.mkdir(parents=True)
        shutil.copyfile(kept, log_dir / _FEATURES)
        _write_meta(log_dir, formatting)
        return
    _run_tool(log_dir, formatting)
    if is_plain:
        part = kept.with_suffix(f".{uuid.uuid4().hex}.part")
        shutil.copyfile(log_dir / _FEATURES, part)
        os.replace(part, kept)


def _write_meta(log_dir: Path, formatting: Formatting) -> None:
    lines = {
        "version": "1",
        "cluster.id": formatting.cluster_id,
        "node.id": str(formatting.node),
        "directory.id": random_id(),
    }
    part = log_dir / "meta.properties.part"
    part.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), encoding="utf-8")
    os.replace(part, log_dir / "meta.properties")


def _run_tool(log_dir: Path, formatting: Formatting) -> None:
    command = [*formatting.java, "kafka.tools.StorageTool", "format"]
    command += [f"--cluster-id={formatting.cluster_id}", "--config", str(formatting.settings)]
    done = subprocess.run([*command, *formatting.arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(log_dir, ignore_errors=True)
        reason = log_reason(done.stderr + done.stdout)
        raise BrokerError(f"the data folder {log_dir.parent} can't be formatted: {reason}")
