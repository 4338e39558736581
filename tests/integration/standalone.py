"""A standalone Spark: a Master and Workers, started through `spark-class` of the installed package."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from onceflow.runtime.environment.java import find_java
from onceflow.runtime.hosts.spark.class_archive import as_setting, local_java_options, spark_home

LOOPBACK = "127.0.0.1"


def quick_java() -> str:
    """Java options for the JVMs of a cluster, as for local Sparks (tests/conftest.py): none lives long."""
    return as_setting(local_java_options(find_java()))


class Standalone:
    """Its processes, by the names that a test gives them."""

    def __init__(self, folder: Path) -> None:
        find_java()
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, program: str, *arguments: str, address: str = LOOPBACK, on: Sequence[str] = ()
    ) -> None:
        """`program`: `deploy.master.Master` or `deploy.worker.Worker`. `on`: what a command begins with if it
        is to run where `address` is."""
        command = [*on, f"{spark_home()}/bin/spark-class", f"org.apache.spark.{program}"]
        self.start_command(name, [*command, "--host", address, "--webui-port", "0", *arguments], address)

    def start_command(
        self, name: str, command: Sequence[str], address: str = LOOPBACK, env: Mapping[str, str] | None = None
    ) -> None:
        """Any command that becomes one of them."""
        with (self.folder / f"{name}.log").open("ab") as log:
            ours = {"SPARK_LOCAL_IP": address, "SPARK_DAEMON_JAVA_OPTS": quick_java()}
            env = {**os.environ, **ours, **(env or {})}
            self._processes[name] = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def start_worker(
        self, name: str, master: str, cores: int, *, address: str = LOOPBACK, on: Sequence[str] = ()
    ) -> None:
        options = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(self.folder / name)]
        self.start(name, "deploy.worker.Worker", *options, master, address=address, on=on)

    def executors(self, *names: str) -> list[psutil.Process]:
        """The JVMs that these workers have started for jobs."""
        found = []
        for name in names:
            for child in psutil.Process(self._processes[name].pid).children(recursive=True):
                with suppress(psutil.Error):  # of a helper that has just ended
                    if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                        found.append(child)
        return found

    def kill(self, name: str) -> None:
        """Kill a process with all that it started, as a machine that loses its power."""
        process = self._processes.pop(name)
        for each in [*psutil.Process(process.pid).children(recursive=True), process]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait(120)

    def close(self) -> None:
        for name in reversed(list(self._processes)):
            self.kill(name)
