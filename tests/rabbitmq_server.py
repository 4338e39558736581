"""A real RabbitMQ for tests, from Debian's package: not started where that is not installed."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pika
import psutil
from pika.exceptions import AMQPError
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from onceflow.connectors.kafka.embedded.ports import free_port
from tests.server_container import Container, container_of, image_of

DEADLINE_S = 240
SETTLED_S = 0.4
_HOMES = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
_NO_PROCESS = "" if _HOMES else "there is no RabbitMQ here: apt-get install rabbitmq-server"
WHY_NOT = "" if image_of("rabbitmq") else _NO_PROCESS
"""Why there is none; empty: there is one, or the image of a container is named."""
_PLUGINS = "[rabbitmq_stream, rabbitmq_prometheus].\n"


class RabbitServer:
    """A server with the stream plugin on ports of loopback, with a folder and an epmd of its own, which are
    gone when it is closed. Root does not run it: then the user nobody does."""

    def __init__(self, settings: str = "") -> None:
        """`settings`: lines of rabbitmq.conf."""
        self.port, self.stream_port, self._epmd_port, self._dist_port, self._metrics_port = (
            free_port() for _ in range(5)
        )
        ports = [self.port, self.stream_port, self._metrics_port]
        said = _HOMES[-1].name if _HOMES else ""
        self._container = container_of("rabbitmq", said, ports, lambda: _NO_PROCESS)
        self._process: subprocess.Popen[bytes] | Container | None = None
        settings = (
            f"stream.advertised_host = 127.0.0.1\nstream.advertised_port = {self.stream_port}\n"
            f"collect_statistics_interval = 100\n{settings}\n"
        )
        if self._container is not None:
            self._container.files["/etc/rabbitmq/conf.d/90-onceflow.conf"] = (
                f"loopback_users = none\n{settings}"
            )
            self._container.files["/etc/rabbitmq/enabled_plugins"] = _PLUGINS
            return
        self._folder = Path(tempfile.mkdtemp(prefix="onceflow-rabbitmq-"))
        self._user: dict[str, Any] = {}
        home = self._folder / "home"
        home.mkdir()
        (home / ".erlang.cookie").write_text("ONCEFLOWTESTS")
        (home / ".erlang.cookie").chmod(0o400)
        (self._folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = 127.0.0.1:{self.port}\n"
            f"stream.listeners.tcp.1 = 127.0.0.1:{self.stream_port}\n"
            f"prometheus.tcp.ip = 127.0.0.1\nprometheus.tcp.port = {self._metrics_port}\n"
            f"{settings}"
        )
        (self._folder / "enabled_plugins").write_text(_PLUGINS)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            for each in (self._folder, home, home / ".erlang.cookie", *self._folder.iterdir()):
                os.chown(each, nobody.pw_uid, nobody.pw_gid)
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "onceflow@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2",
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_PID_FILE": str(self._folder / "pid"),
        }

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}/"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException as error:
            error.add_note(self.log()[-2_000:])
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._container is not None:
            self._container.close()
            return
        subprocess.run(["epmd", "-kill"], env=self._environment, check=False, capture_output=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, again where it was killed, and wait until it answers."""
        self._process = self._run_server() if self._container is None else self._container.start()
        self.connect().close()

    def _run_server(self) -> subprocess.Popen[bytes]:
        with open(self._folder / "server.log", "ab") as log:
            return subprocess.Popen(
                [_HOMES[-1] / "sbin" / "rabbitmq-server"],
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
                **self._user,
            )

    @retry(
        retry=retry_if_exception_type((AMQPError, OSError)),
        stop=stop_after_delay(DEADLINE_S),
        wait=wait_fixed(0.1),
        reraise=True,
    )
    def connect(self) -> pika.BlockingConnection:
        """A connection, once it answers."""
        return pika.BlockingConnection(pika.URLParameters(self.url))

    def kill(self) -> None:
        """SIGKILL, to the server and all its processes."""
        process, self._process = self._process, None
        if isinstance(process, Container):
            process.kill()
        elif process is not None:
            with suppress(psutil.Error):
                children = psutil.Process(process.pid).children(recursive=True)
                for each in children:
                    with suppress(psutil.Error):
                        each.kill()
                psutil.wait_procs(children, DEADLINE_S)
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()

    def restart(self) -> None:
        """End it in order, and start it: it knows of a new stream after a kill only if it was ended so since,
        or some seconds have passed."""
        assert self._process is not None
        if isinstance(self._process, Container):
            self._process.terminate()
            return self.start()
        for each in psutil.Process(self._process.pid).children(recursive=True):
            if each.name() == "beam.smp":
                each.terminate()
        self._process.wait(DEADLINE_S)
        self.start()

    def log(self) -> str:
        if self._container is not None:
            return self._container.log()
        return (self._folder / "server.log").read_text(errors="replace")

    def wait_until_empty(self, queue: str) -> None:
        """Wait until the queue has no message, delivered or not. A reader acknowledges on a thread of its
        own, and a server that is busy takes its time: what it has now says nothing yet."""
        deadline = time.monotonic() + DEADLINE_S
        while left := self.messages(queue):
            assert time.monotonic() < deadline, f"queue {queue} still has {left} messages"

    def messages(self, queue: str) -> int:
        """How many messages the queue has, delivered or not, once that has been the same for a while."""
        url = f"http://127.0.0.1:{self._metrics_port}/metrics/detailed?family=queue_coarse_metrics"
        wanted = re.compile(rf'^rabbitmq_detailed_queue_messages\{{.*queue="{queue}"\}} (\d+)', re.MULTILINE)
        deadline, found, since = time.monotonic() + DEADLINE_S, -1, time.monotonic()
        while found < 0 or time.monotonic() - since < SETTLED_S:
            assert time.monotonic() < deadline, f"queue {queue} has no count that stays"
            with urllib.request.urlopen(url) as answer:
                match = wanted.search(answer.read().decode())
            now = int(match[1]) if match else -1
            if now != found:
                found, since = now, time.monotonic()
            time.sleep(0.02)
        return found
