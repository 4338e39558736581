"""`onceflow broker`: a real Kafka on loopback that outlives the shell, and a look into any Kafka's topics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import platformdirs
import typer
from rich.console import Console

from onceflow.cli.broker_consume import consume
from onceflow.cli.broker_options import name_value_pairs
from onceflow.cli.broker_produce import produce
from onceflow.cli.broker_topics import create, topics
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.embedded.jars import MAVEN_CENTRAL, PINNED_VERSION, JarCache
from onceflow.connectors.kafka.embedded.process import BrokerProcess, running_broker, stop_broker
from onceflow.connectors.kafka.embedded.settings import HOST

app = typer.Typer(
    help="A real single-node Apache Kafka on this machine; and the topics of any Kafka.",
    no_args_is_help=True,
    add_completion=False,
)

Port = Annotated[int, typer.Option(min=1, max=65535, help="Where clients connect, on 127.0.0.1.")]
Data = Annotated[
    Path | None, typer.Option(help="The data folder. Default: one for each port, among the user's data.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Version = Annotated[
    str, typer.Option("--kafka-version", envvar="ONCEFLOW_KAFKA_VERSION", help="One of the pinned versions.")
]
Mirror = Annotated[
    str,
    typer.Option("--maven-mirror", envvar="ONCEFLOW_MAVEN_MIRROR", help="Root URL of a Maven repository."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of Kafka itself; repeatable."),
]


@app.command()
def start(
    port: Port = 9092,
    data: Data = None,
    settings: Set = None,
    version: Version = PINNED_VERSION,
    mirror: Mirror = MAVEN_CENTRAL,
    as_json: AsJson = False,
) -> None:
    """Start it in the background and return when it answers. The first start downloads Kafka."""
    folder = _folder(data, port)
    cache = JarCache(maven_mirror=mirror)
    kafka = EmbeddedKafka(folder, port, version, name_value_pairs(settings or [], "--set"), jar_cache=cache)
    console = Console(stderr=True)
    what = "starting" if cache.has(version) else "downloading, once, and starting"
    with console.status(f"{what} Kafka {version}"):
        kafka.start()
    _report(folder, running_broker(folder), as_json)


@app.command()
def stop(port: Port = 9092, data: Data = None, as_json: AsJson = False) -> None:
    """End it cleanly. Its data stay, and the next start goes on with them."""
    folder = _folder(data, port)
    stopped = stop_broker(folder)
    if as_json:
        typer.echo(json.dumps({"running": False, "stopped_pid": stopped.pid if stopped else None}))
    elif stopped is None:
        typer.echo(f"no broker runs on {folder}")
    else:
        typer.echo(f"stopped the broker on {folder} (process {stopped.pid})")


@app.command()
def status(port: Port = 9092, data: Data = None, as_json: AsJson = False) -> None:
    """Say whether it runs, and where. Exit code 1 if it does not."""
    folder = _folder(data, port)
    running = running_broker(folder)
    _report(folder, running, as_json)
    if running is None:
        raise typer.Exit(1)


for _command in (topics, create, produce, consume):
    app.command()(_command)


def _folder(data: Path | None, port: int) -> Path:
    folder = data or platformdirs.user_data_path("onceflow", appauthor=False) / f"broker-{port}"
    return folder.absolute()


def _report(folder: Path, running: BrokerProcess | None, as_json: bool) -> None:
    if running is None:
        typer.echo(json.dumps({"running": False}) if as_json else f"no broker runs on {folder}")
        return
    address = f"{HOST}:{running.listeners['PLAINTEXT']}"
    if as_json:
        report = {"running": True, "pid": running.pid, "bootstrap_servers": address}
        typer.echo(json.dumps({**report, "version": running.version, "data": str(folder)}))
    else:
        typer.echo(f"Kafka {running.version} runs on {address} (process {running.pid}, data in {folder})")
