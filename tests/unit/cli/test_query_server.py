"""The server over HTTP: what the client asks, what is refused, and each refusal's sentence."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from onceflow import StateClient
from onceflow.cli.query_server import BODY_BYTES_MAX, query_app
from onceflow.runtime.errors import Retryable, UsageError
from onceflow.runtime.state_tables.followed import FollowedState
from onceflow.runtime.state_tables.reader import UnknownTableError

PROGRAMS = Path(__file__).parents[1] / "changed_programs"
TOKEN = "0123456789abcdef"


def live(operator: str, state: str, keys: Sequence[Any], are_texts: bool) -> dict[str, Any]:
    """A job that runs and knows of the only key `a`."""
    if operator == "away":
        raise Retryable("no slots of the job run just now (restarting): ask again in a moment")
    if operator == "nowhere":
        raise UnknownTableError("the job keeps no state for 'nowhere'")
    rows = [[{"user": key, "value": are_texts}] if key == "a" else [] for key in keys]
    return {"is_live": True, "attempt": 3, "checkpoint_id": 41, "rows": rows}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    followed = FollowedState(str(shutil.copytree(PROGRAMS / "golden_3", tmp_path / "checkpoints")))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(query_app(followed, TOKEN, live), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(60)
    followed.close()


def test_one_key_many_keys_and_tables(url: str) -> None:
    client = StateClient(url, TOKEN)
    row = {"user": "user-023", "map_key": 30000, "value": 395}
    answer = client.get("process", "totals", "user-023")
    assert (answer["checkpoint_id"], answer["rows"]) == (2, [row])
    assert answer["offsets"]["src"][0]["position"] == '{"next_offset": 330}'
    assert client.get_many("process", "totals", ["nobody", "user-023"])["rows"] == [[], [row]]
    states = [table["state"] for table in client.tables()["tables"] if table["operator"] == "process"]
    assert states == ["n", "totals", "times", "timers"]
    client.close()
    assert client.get("process", "totals", "nobody")["rows"] == []
    client.close()


def test_what_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="the token is missing or wrong"):
        StateClient(url, "another").tables()
    client = StateClient(url, TOKEN)
    with pytest.raises(UsageError, match="did you mean 'process'"):
        client.get("proces", "totals", "a")
    with pytest.raises(UsageError, match="has no column 'usr'"):
        client.get("process", "totals", {"usr": "a"})
    with pytest.raises(UsageError, match="write http://HOST:PORT"):
        StateClient("localhost", TOKEN)
    client.close()


def test_a_live_question_is_the_jobs_to_answer_and_nobody_else_does_in_its_place(url: str) -> None:
    client = StateClient(url, TOKEN)
    answer = client.get("totals", "n", "a", live=True)
    assert (answer["is_live"], answer["attempt"], answer["checkpoint_id"]) == (True, 3, 41)
    assert answer["rows"] == [{"user": "a", "value": False}]
    assert client.get_many("totals", "n", ["b", "a"], live=True)["rows"] == [[], answer["rows"]]
    with pytest.raises(Retryable, match=r"run just now \(restarting\)"):
        client.get("away", "n", "a", live=True)
    with pytest.raises(UsageError, match="keeps no state for 'nowhere'"):
        client.get("nowhere", "n", "a", live=True)
    assert "is_live" not in client.get("process", "totals", "user-023")
    client.close()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("totals?key=user-023", 200),
        ("n?key=a&live=true", 200),
        ("n?live=true", 400),
        ("totals", 400),
        ("totls?key=a", 404),
    ],
)
def test_get(url: str, path: str, status: int) -> None:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    connection.request("GET", f"/v1/state/process/{path}", headers={"Authorization": f"Bearer {TOKEN}"})
    assert connection.getresponse().status == status
    connection.close()


def status_of(url: str, body: bytes) -> tuple[int, str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    connection.request("POST", "/v1/state/process/totals", body, {"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    said = json.loads(answer.read())
    connection.close()
    return answer.status, str(said.get("error", ""))


def test_a_question_that_is_too_large(url: str) -> None:
    assert status_of(url, b" " * (BODY_BYTES_MAX - 20) + b'{"keys": []}') == (200, "")
    status, said = status_of(url, b" " * (BODY_BYTES_MAX + 1))
    assert (status, said) == (413, f"the question has more than {BODY_BYTES_MAX} bytes: ask for fewer keys")
    assert status_of(url, b"[1]")[0] == 400


def test_files_that_can_not_be_read_are_a_matter_of_the_server(url: str, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "checkpoints" / "state")
    client = StateClient(url, TOKEN)
    for _ in range(2):
        with pytest.raises(Retryable, match="is gone"):
            client.get("process", "totals", "user-023")
    assert status_of(url, b'{"keys": ["user-023"]}')[0] == 503
    assert client.tables()["checkpoint_id"] == 2, "the server is there"
    client.close()


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Retryable, match="can't be reached"):
        StateClient(f"http://127.0.0.1:{port}", TOKEN).tables()
