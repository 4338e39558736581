"""The folder of an embedded broker is formatted as by Kafka's own tool, which runs once for a version."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from onceflow.connectors.kafka.embedded.formatting import Formatting, format_folder
from onceflow.connectors.kafka.embedded.jars import JarCache
from onceflow.connectors.kafka.embedded.ports import free_port
from onceflow.connectors.kafka.embedded.process import BrokerError, java_command
from onceflow.connectors.kafka.embedded.settings import NODE, Ports, server_properties
from onceflow.runtime.environment.java import find_java

pytestmark = pytest.mark.kafka


def test_a_folder_is_formatted_from_what_kafkas_tool_has_written_once(
    jar_cache: JarCache, kafka_version: str, tmp_path: Path
) -> None:
    """Byte for byte, but for the folder's id; settings of the user's are always looked at by the tool."""
    java = find_java()
    jars = os.pathsep.join(map(str, jar_cache.jars(kafka_version, java)))
    settings = tmp_path / "server.properties"
    cache = JarCache(tmp_path / "cache")
    cache.folder.mkdir()
    written: dict[str, dict[str, bytes]] = {}
    for name, command in (("tool", java_command(java, jars, tmp_path)), ("kept", ["false"])):
        log_dir = tmp_path / name
        ports = Ports(free_port(), {"PLAINTEXT": free_port()})
        settings.write_text(server_properties(log_dir, ports, {"PLAINTEXT": "PLAINTEXT"}, {}))
        formatting = Formatting(kafka_version, "cluster-1", NODE, command, settings)
        format_folder(log_dir, cache, formatting)
        written[name] = {file.name: file.read_bytes() for file in log_dir.iterdir() if file.name[0] != "."}
    metas = [_meta(files.pop("meta.properties")) for files in written.values()]
    folder_ids = [meta.pop("directory.id") for meta in metas]
    assert metas[0] == metas[1]
    assert len(set(folder_ids)) == 2
    assert [*map(len, folder_ids)] == [22, 22]
    assert written["kept"] == written["tool"] != {}
    with pytest.raises(BrokerError, match="can't be formatted"):
        format_folder(tmp_path / "own", cache, replace(formatting, has_own_settings=True))
    assert not (tmp_path / "own").exists()


def _meta(text: bytes) -> dict[str, str]:
    lines = text.decode().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))
