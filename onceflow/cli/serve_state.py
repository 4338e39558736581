"""`onceflow serve-state DIR`: answers queries from the last completed checkpoint of a job."""

from __future__ import annotations

import secrets
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from onceflow.cli.live_query import ask_live
from onceflow.connectors.extras import needs_extra
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OnceflowError, OptionError
from onceflow.runtime.state_tables.followed import FollowedState, Name

app = typer.Typer(help="Answer queries of a job's state.", add_completion=False)


@app.command()
def serve_state(
    path: Annotated[str, typer.Argument(help="The job's checkpoint folder, or its URL.")],
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0: any free one.")] = 0,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="A file with the token. Default: a new one, printed.")
    ] = None,
    refresh: Annotated[
        str, typer.Option("--refresh", help="How often to look for a newer checkpoint.")
    ] = "1 s",
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="UID.STATE", help="Load it at the start; repeatable."),
    ] = None,
) -> None:
    """A process of its own: it goes on while the job is killed, restarts or rescales."""
    with needs_extra("onceflow serve-state", "queries"):
        import uvicorn

        from onceflow.cli.query_server import query_app
    refresh_s = duration_ms(refresh, "--refresh") / 1_000
    if refresh_s <= 0:
        raise OptionError("--refresh has to be more than nothing: write '1 s'")
    token = secrets.token_hex(16) if token_file is None else _token_of(token_file)
    followed = FollowedState(path, map(_name, table or ()))
    listener = _listen(host, port)
    typer.echo(f"http://{host}:{listener.getsockname()[1]}")
    if token_file is None:
        typer.echo(f"token {token}")
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(followed, refresh_s, ended), daemon=True)
    thread.start()
    try:
        config = uvicorn.Config(
            query_app(followed, token, partial(ask_live, path)), log_level="warning", access_log=False
        )
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        ended.set()
        followed.close()


def _follow(followed: FollowedState, refresh_s: float, ended: threading.Event) -> None:
    """Load newer checkpoints until it has ended. What goes wrong is told once; the earlier one answers."""
    told = ""
    while not ended.wait(refresh_s):
        try:
            followed.refresh()
            told = ""
        except Exception as error:  # whatever it is: old answers for good, without a word, would be worse
            shown = str(error) if isinstance(error, OnceflowError | OSError) else repr(error)
            if shown != told:
                told = shown
                typer.echo(f"onceflow: the earlier checkpoint goes on to answer: {told}", err=True)


def _listen(host: str, port: int) -> socket.socket:
    if host in ("0.0.0.0", "::", ""):
        raise OptionError(f"--host {host!r} would listen on all addresses: give one of this machine")
    try:
        listener = socket.create_server((host, port))
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"--port {port}: can't listen on {host}: {error}: choose another port, or 0 for any"
        ) from error
    # Connections have it from here: without it the second part of an answer waits 40 ms for the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _token_of(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except OSError as error:
        raise OptionError(
            f"--token-file {file} can't be read: {error}: give a file with the token"
        ) from error
    if len(token) < 16:
        raise OptionError(f"--token-file {file} has a token of less than 16 characters: write a longer one")
    return token


def _name(text: str) -> Name:
    uid, dot, state = text.rpartition(".")
    if not dot or not uid or not state:
        raise OptionError(f"--table {text!r} is not a table: write UID.STATE")
    return uid, state
