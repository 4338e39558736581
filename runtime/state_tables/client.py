"""onceflow.StateClient: asks `onceflow serve-state` for the rows of keys."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlsplit

from onceflow.runtime.errors import Retryable, UsageError
from onceflow.runtime.explained_calls import explained

TIMEOUT_S = 60.0


@explained
class StateClient:
    """Asks a server of `onceflow serve-state` for the state of a job: as of its last completed checkpoint,
    or live.

    Answers are what the server sends as JSON: `checkpoint_id`, `completed_ms`, `offsets` of the sources, and
    rows. Any thread may ask; questions of one client go one after the other over one connection. Raises
    UsageError for a wrong token, table or key, Retryable if the server can't be reached.
    """

    def __init__(self, url: str, token: str) -> None:
        """`url` and `token` are what the server prints: `http://127.0.0.1:8080`."""
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise UsageError(f"{url!r} is not the address of a state server: write http://HOST:PORT")
        self._url = url
        self._token = token
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=TIMEOUT_S)
        self._asking = threading.Lock()

    def get(self, operator: str, state: str, key: Any, live: bool = False) -> dict[str, Any]:
        """The answer for one key, whose rows are in `rows`: none if it has no state. A key is the value of
        the only key column, or a dictionary with a value for each. `live`: see `get_many`."""
        answer = self.get_many(operator, state, [key], live)
        return {**answer, "rows": answer["rows"][0]}

    def get_many(self, operator: str, state: str, keys: Iterable[Any], live: bool = False) -> dict[str, Any]:
        """The answer for many keys, all of one checkpoint: `rows` has a list for each key, in their order.

        `live`: the job that runs answers, with what no checkpoint has yet; a restart may take it back.
        `attempt` and `checkpoint_id` say on what it builds; there are no `offsets`. Slots answer each by
        itself, so that keys of different slots are not of one moment. Raises Retryable if the job does not
        run, or can't answer now: never does the last completed checkpoint answer in its place.
        """
        path = f"/v1/state/{quote(operator, safe='')}/{quote(state, safe='')}"
        asked = {"keys": list(keys), "live": True} if live else {"keys": list(keys)}
        return self._ask("POST", path, json.dumps(asked))

    def tables(self) -> dict[str, Any]:
        """Which tables there are: `tables` has operator, state and kind of each."""
        return self._ask("GET", "/v1/tables", None)

    def close(self) -> None:
        """Close the connection. The next question opens another."""
        with self._asking:
            self._connection.close()

    def _ask(self, method: str, path: str, body: str | None) -> dict[str, Any]:
        with self._asking:
            try:
                status, text = self._sent(method, path, body)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                status, text = self._again(method, path, body)  # an idle connection that the server closed
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error
        answer: dict[str, Any] = json.loads(text)
        if status == 200:
            return answer
        raise (Retryable if status >= 500 else UsageError)(str(answer["error"]))

    def _again(self, method: str, path: str, body: str | None) -> tuple[int, bytes]:
        self._connection.close()
        try:
            return self._sent(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _sent(self, method: str, path: str, body: str | None) -> tuple[int, bytes]:
        try:
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except BaseException:
            self._connection.close()
            raise

    def _unreachable(self, error: Exception) -> Retryable:
        return Retryable(f"the server of state at {self._url} can't be reached: {error}: see if it runs")
