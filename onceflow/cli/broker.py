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
from onceflow.cli.registry_values import require_registry_packages
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.embedded.jars import MAVEN_CENTRAL, PINNED_VERSION, JarCache
from onceflow.connectors.kafka.embedded.process import BrokerProcess, running_broker, stop_broker
from onceflow.connectors.kafka.embedded.registry import EmbeddedRegistry, running_registry, stop_registry
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
Registry = Annotated[
    bool, typer.Option("--registry", help="A schema registry, too; also beside a broker that runs already.")
]
RegistryPort = Annotated[int, typer.Option(min=1, max=65535, help="Where the registry is, on 127.0.0.1.")]
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
    registry: Registry = False,
    registry_port: RegistryPort = 8081,
    as_json: AsJson = False,
) -> None:
    """Start it in the background and return when it answers. The first start downloads Kafka."""
    folder = _folder(data, port)
    schemas = EmbeddedRegistry(folder, registry_port)
    if registry:
        require_registry_packages("--registry")
    if registry and running_broker(folder) is not None and running_registry(folder) is None:
        schemas.start()
        _report(folder, as_json)
        return
    cache = JarCache(maven_mirror=mirror)
    kafka = EmbeddedKafka(folder, port, version, name_value_pairs(settings or [], "--set"), jar_cache=cache)
    console = Console(stderr=True)
    what = "starting" if cache.has(version) else "downloading, once, and starting"
    with console.status(f"{what} Kafka {version}"):
        kafka.start()
        if registry:
            _start_beside(kafka, schemas)
    _report(folder, as_json)


@app.command()
def stop(port: Port = 9092, data: Data = None, as_json: AsJson = False) -> None:
    """End it cleanly. Its data stay, and the next start goes on with them."""
    folder = _folder(data, port)
    registry = stop_registry(folder)
    stopped = stop_broker(folder)
    if as_json:
        typer.echo(json.dumps({"running": False, "stopped_pid": stopped.pid if stopped else None}))
    elif stopped is None:
        typer.echo(f"no broker runs on {folder}; one that was started with --data is found by it")
    else:
        also = f", and the schema registry on {registry}" if registry else ""
        typer.echo(f"stopped the broker on {folder} (process {stopped.pid}){also}")


@app.command()
def status(port: Port = 9092, data: Data = None, as_json: AsJson = False) -> None:
    """Say whether it runs, and where. Exit code 1 if it does not."""
    if not _report(_folder(data, port), as_json):
        raise typer.Exit(1)


for _command in (topics, create, produce, consume):
    app.command()(_command)


def _folder(data: Path | None, port: int) -> Path:
    folder = data or platformdirs.user_data_path("onceflow", appauthor=False) / f"broker-{port}"
    return folder.absolute()


def _start_beside(kafka: EmbeddedKafka, schemas: EmbeddedRegistry) -> None:
    """Both run or none: who asked for two and got one would have to stop it to ask again."""
    try:
        schemas.start()
    except BaseException:
        kafka.stop()
        raise


def _report(folder: Path, as_json: bool) -> bool:
    """Whether it runs."""
    running, registry = running_broker(folder), running_registry(folder)
    if as_json:
        typer.echo(json.dumps(_as_row(folder, running, registry)))
    elif running is None:
        typer.echo(f"no broker runs on {folder}; one that was started with --data is found by it")
    else:
        where = f"{_address(running)} (process {running.pid}, data in {folder})"
        typer.echo(f"Kafka {running.version} runs on {where}")
    if registry and not as_json:
        typer.echo(f"a schema registry runs on {registry}")
    return running is not None


def _as_row(folder: Path, running: BrokerProcess | None, registry: str | None) -> dict[str, object]:
    also = {"registry": registry} if registry else {}
    if running is None:
        return {"running": False, **also}
    row = {"running": True, "pid": running.pid, "bootstrap_servers": _address(running)}
    return {**row, "version": running.version, "data": str(folder), **also}


def _address(running: BrokerProcess) -> str:
    return f"{HOST}:{running.listeners['PLAINTEXT']}"
