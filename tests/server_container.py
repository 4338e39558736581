"""Containers for the servers of the tests: where there is an engine and the image, else processes.

Each server (tests/*_server.py) asks `container_of` when it is made. What ran is counted, and the summary of
the tests says it. The shared Kafka has options of its own: tests/shared_broker.py.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_PULL_S = 300.0
RAN: Counter[str] = Counter()
"""What servers ran as, in this process: `postgres: process 16.14, there is no container engine`."""


@dataclass(frozen=True)
class Recipe:
    """How an official image is run: the ports that it listens on, and what it is told besides."""

    image: str
    """What is taken where no other image is named and this one is here; with ONCEFLOW_TEST_SERVERS=container
    it is pulled."""
    ports: Sequence[int]
    environment: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    volumes: Sequence[str] = ()
    """Folders for which the file system of a container will not do."""


_HEAP = "-Xms384m -Xmx384m"
RECIPES = {
    "cassandra": Recipe(
        "cassandra:5.0",
        [9042],
        {
            "MAX_HEAP_SIZE": "384M",
            "HEAP_NEWSIZE": "96M",
            "JVM_EXTRA_OPTS": "-Dcassandra.config=file:///onceflow/cassandra.yaml"
            " -Dcassandra.ring_delay_ms=0 -Dcassandra.skip_wait_for_gossip_to_settle=0"
            " -Dcassandra.superuser_setup_delay_ms=0 -Dcassandra.auth_bcrypt_gensalt_log2_rounds=4",
        },
    ),
    "mariadb": Recipe(
        "mariadb:10.11", [3306], {"MARIADB_ALLOW_EMPTY_ROOT_PASSWORD": "1", "MARIADB_DATABASE": "shop"}
    ),
    "opensearch": Recipe(
        "opensearchproject/opensearch:2.19.1",
        [9200],
        {
            "discovery.type": "single-node",
            "DISABLE_SECURITY_PLUGIN": "true",
            "DISABLE_INSTALL_DEMO_CONFIG": "true",
            "OPENSEARCH_JAVA_OPTS": _HEAP,
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        },
    ),
    "postgres": Recipe(
        "postgres:16",
        [5432],
        {
            "POSTGRES_USER": "onceflow",
            "POSTGRES_DB": "postgres",
            "POSTGRES_HOST_AUTH_METHOD": "trust",
            "POSTGRES_INITDB_ARGS": "--locale=C --encoding=UTF8",
        },
        ["postgres"],
    ),
    "rabbitmq": Recipe("rabbitmq:3.13", [5672, 5552, 15692]),
    "redis": Recipe("redis:7", [6379], command=["redis-server", "--protected-mode", "no"]),
    "registry": Recipe("apicurio/apicurio-registry:3.3.3", [8080]),
    "s3": Recipe(
        "versity/versitygw:v1.8.0",
        [7070],
        {"ROOT_ACCESS_KEY": "onceflow", "ROOT_SECRET_KEY": "onceflow-secret"},
        ["--port", ":7070", "posix", "--sidecar", "/sidecar", "/data"],
        ["/data", "/sidecar"],
    ),
}
"""The key is the name that ONCEFLOW_IMAGE_<NAME> has in capitals."""


class Container:
    """A server in a container; it has what servers need of a `subprocess.Popen`. What it has written is there
    again when it is started after a kill; `close` removes it."""

    def __init__(self, image: str, recipe: Recipe, ports: Sequence[int]) -> None:
        """`ports`: of this machine, one for each of the recipe's."""
        self.image = image
        self.command = list(recipe.command)
        self.files: dict[str, str] = {}
        """What is in it, by path, from its first start on."""
        self._recipe, self._ports = recipe, ports
        self._container: Any = None

    def start(self) -> Container:
        """Start it, again where it was killed. It answers some time later."""
        from testcontainers.core.container import DockerContainer

        if self._container is not None:
            self._container.get_wrapped_container().start()
            return self
        from docker.types import Mount

        made = DockerContainer(self.image).with_envs(**self._recipe.environment)
        made = made.with_kwargs(mounts=[Mount(each, None) for each in self._recipe.volumes])
        if self.command:
            made = made.with_command(list(self.command))
        for inside, outside in zip(self._recipe.ports, self._ports, strict=True):
            made.ports[str(inside)] = ("127.0.0.1", outside)
        for path, text in self.files.items():
            made = made.with_copy_into_container(text.encode(), path, 0o644)
        self._container = made  # and so it is removed though it may not start
        made.start()
        return self

    def poll(self) -> int | None:
        """None: it runs."""
        inner = self._container.get_wrapped_container()
        inner.reload()
        return None if inner.status == "running" else int(inner.attrs["State"]["ExitCode"])

    def kill(self) -> None:
        """SIGKILL, to all its processes, and wait until they are gone."""
        if self._container is not None and self.poll() is None:
            self._container.get_wrapped_container().kill()
            self.wait()

    def terminate(self) -> None:
        """End it in order."""
        self._container.get_wrapped_container().stop(timeout=120)

    def wait(self, timeout: float | None = None) -> int:
        """The code that it ended with."""
        return int(self._container.get_wrapped_container().wait(timeout=timeout)["StatusCode"])

    def log(self) -> str:
        return "" if self._container is None else self._container.get_wrapped_container().logs().decode()

    def close(self) -> None:
        """It is away, and all that it has written; also if it never started."""
        container, self._container = self._container, None
        if container is not None:
            container.stop()


def image_of(name: str) -> str:
    """The image that is named for a server; empty: none is."""
    default = RECIPES[name].image if os.environ.get("ONCEFLOW_TEST_SERVERS") == "container" else ""
    return os.environ.get(f"ONCEFLOW_IMAGE_{name.upper()}", default)


def container_of(
    name: str, process: str, ports: Sequence[int], why_no_process: Callable[[], str] = lambda: ""
) -> Container | None:
    """The container of a server, or None: it is to be a process, or the test is skipped if there can be none
    here, either. `process`: what that would be, for the summary. `ports`: see Container."""
    image = image_of(name) or RECIPES[name].image
    why = hindrance(image, pulls=bool(image_of(name)))
    if not why:
        RAN[f"{name}: container {image}"] += 1
        return Container(image, RECIPES[name], ports)
    if why_not := why_no_process():
        pytest.skip(f"{why_not}; no container, either (ONCEFLOW_IMAGE_{name.upper()}): {why}")
    RAN[f"{name}: process {process}, {why}"] += 1
    return None


@functools.cache
def hindrance(image: str, pulls: bool = True) -> str:
    """Why there is no container of the image; empty: there is one to be had. `pulls`: whether one that is not
    here is pulled."""
    if os.environ.get("ONCEFLOW_TEST_SERVERS") == "process":
        return "ONCEFLOW_TEST_SERVERS=process"
    if not has_engine():
        return "there is no container engine"
    if not _fails("image", "inspect", image):
        return ""
    if not pulls:
        return f"{image} is not here, and no image is named"
    return f"{image} is not here and can't be pulled" if _fails("pull", "--quiet", image) else ""


@functools.cache
def has_engine() -> bool:
    return shutil.which("docker") is not None and not _fails("version")


def _fails(*arguments: str) -> bool:
    """Whether docker refused, or took too long."""
    command = ["docker", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_PULL_S, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


@functools.cache
def version_of(program: str | Path) -> str:
    """The version that a program tells."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+(\.\d+)+", told.stdout + told.stderr)
    return found[0] if found else "of an unknown version"
