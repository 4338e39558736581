"""Machines for tests: network namespaces with an address each, on a bridge of their own.

Processes in one see nothing of the others but through their cable, which can be cut. The bridge is in a
namespace too, where no firewall of this machine (Docker's, for one) has a say. Needs root and iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Self

PREFIX = "10.213.77"
"""A network that nobody else here uses."""

_HUB = "hub"
_FORWARD = """
import socket, sys, threading
def place(text):  # a path, or host:port
    host, _, port = text.rpartition(":")
    return (socket.AF_INET, (host, int(port))) if host else (socket.AF_UNIX, text)
(listens_by, listens), (goes_by, goes_to) = map(place, sys.argv[1:])
def pump(source, target):
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
def serve(accepted):
    opened = socket.socket(goes_by)
    try:
        opened.connect(goes_to)
    except OSError:
        accepted.close()
        return
    threading.Thread(target=pump, args=(opened, accepted), daemon=True).start()
    pump(accepted, opened)
listener = socket.socket(listens_by)
listener.bind(listens)
listener.listen(256)
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


def why_not() -> str | None:
    """Why there can be no namespaces here; None: there can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and iproute2"
    made = subprocess.run(["ip", "netns", "add", "onceflow-try"], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "del", "onceflow-try"], check=True)
        return None
    return f"network namespaces are not allowed here: {made.stderr.strip()}"


class Machines:
    """One namespace for each name; they are gone after the with statement."""

    def __init__(self, folder: Path, *names: str) -> None:
        """`folder`: for sockets."""
        self._folder = folder
        self.addresses = {name: f"{PREFIX}.{10 + number}" for number, name in enumerate(names)}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            for space in map(self._space, (_HUB, *self.addresses)):
                self._run("ip", "netns", "add", space)
                undo.callback(self._run, "ip", "netns", "del", space)
            hub = ["ip", "-n", self._space(_HUB)]
            self._run(*hub, "link", "add", "bridge", "type", "bridge")
            self._run(*hub, "addr", "add", f"{PREFIX}.1/24", "dev", "bridge")
            self._run(*hub, "link", "set", "bridge", "up")
            for name, address in self.addresses.items():
                space = self._space(name)
                inside = ["ip", "-n", space]
                self._run(
                    *hub, "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", space
                )
                self._run(*hub, "link", "set", f"to-{name}", "master", "bridge", "up")
                self._run(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
                self._run(*inside, "link", "set", "eth0", "up")
                self._run(*inside, "link", "set", "lo", "up")
            self._stack = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def on(self, name: str) -> list[str]:
        """What a command begins with to run on this machine; its process id stays the command's own."""
        return ["ip", "netns", "exec", self._space(name)]

    def cut(self, name: str) -> None:
        """Nothing gets through this machine's cable any more: no end of a connection is told."""
        self._cable(name, "down")

    def mend(self, name: str) -> None:
        self._cable(name, "up")

    def lose(self, sender: str, receiver: str) -> None:
        """What this machine sends to that one is lost without a word, as behind a firewall."""
        self._run("ip", "-n", self._space(sender), "route", "add", "blackhole", self.addresses[receiver])

    def lend_port(self, port: int) -> None:
        """A port of loopback here can be reached on loopback of each machine, through its cable."""
        path = str(self._folder / f"port-{port}")
        self._forward([], path, f"127.0.0.1:{port}")
        self._forward(self.on(_HUB), f"{PREFIX}.1:{port}", path)
        for name in self.addresses:
            self._forward(self.on(name), f"127.0.0.1:{port}", f"{PREFIX}.1:{port}")

    def _forward(self, where: list[str], listens: str, goes_to: str) -> None:
        command = [*where, sys.executable, "-c", _FORWARD, listens, goes_to]
        forwarder = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._stack.callback(forwarder.wait)
        self._stack.callback(forwarder.kill)
        assert forwarder.stdout is not None
        assert forwarder.stdout.readline() == b"ready\n"

    def _cable(self, name: str, state: str) -> None:
        self._run("ip", "-n", self._space(_HUB), "link", "set", f"to-{name}", state)

    @staticmethod
    def _space(name: str) -> str:
        return f"onceflow-{name}"

    @staticmethod
    def _run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
