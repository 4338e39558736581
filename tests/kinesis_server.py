"""A Kinesis for tests: kinesalite (npm), in a process of its own, which splits and merges as Amazon's does;
or moto (PyPI), on a thread, whose shards of a resharded stream are not right, and are not tested."""

from __future__ import annotations

import datetime as dt
import email.utils
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import boto3
import platformdirs
from botocore.config import Config
from moto.server import ThreadedMotoServer
from tenacity import retry, stop_after_delay, wait_fixed

from onceflow.connectors.kafka.embedded.ports import free_port

REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "onceflow", "AWS_SECRET_ACCESS_KEY": "onceflow-secret"}
DAY_MS = 24 * 3_600_000
_DEADLINE_S = 240
_MAIN = """
const now = Date.now; let ahead = 0
Date.now = () => now() + ahead
process.on('uncaughtException', () => {})  // it throws when a client is killed in a request
process.on('SIGUSR2', () => { ahead += 25 * 3600000 })
// Where nothing has arrived since a time, it never answers to AT_TIMESTAMP.
const action = require.resolve(process.argv[1] + '/actions/getShardIterator.js'), plain = require(action)
const db = require(process.argv[1] + '/db')
require.cache[action].exports = (store, data, answer) => {
  if (data.ShardIteratorType != 'AT_TIMESTAMP') return plain(store, data, answer)
  const shard = db.resolveShardId(data.ShardId).shardIx
  const range = {gt: db.shardIxToHex(shard), lt: db.shardIxToHex(shard + 1)}
  let found = false
  store.getStreamDb(data.StreamName).createReadStream(range)
    .on('data', item => { found = found || item.value.ApproximateArrivalTimestamp >= data.Timestamp })
    .on('end', () => {
      if (!found) { data.ShardIteratorType = 'LATEST'; delete data.Timestamp }
      plain(store, data, answer)
    })
}
const settings = {createStreamMs: 0, updateStreamMs: 0, deleteStreamMs: 0, shardLimit: 999}
const server = require(process.argv[1])(settings)
const date = () => new Date(Date.now()).toUTCString()
server.prependListener('request', (asked, answer) => answer.setHeader('Date', date()))
server.listen(process.argv[2], '127.0.0.1')
"""


def kinesalite() -> Path | None:
    """The folder of its package; None: it is not here."""
    cached = platformdirs.user_cache_path("onceflow", appauthor=False) / "kinesalite"
    given = os.environ.get("ONCEFLOW_KINESALITE")
    found = Path(given) if given else cached / "node_modules" / "kinesalite"
    return found if found.exists() and shutil.which("node") else None


WHY_NOT = "" if kinesalite() else "there is no kinesalite here: .ci/run says how to install it"
"""Why there is no server that reshards; empty: there is one."""


class KinesisServer:
    """A server on a port of loopback. While it is open, its credentials are in the environment."""

    def __init__(self, reshards: bool) -> None:
        """`reshards`: kinesalite; else moto."""
        self._process: subprocess.Popen[bytes] | None = None
        self._moto: ThreadedMotoServer | None = None
        self._environment = {name: os.environ.get(name) for name in CREDENTIALS}
        os.environ.update(CREDENTIALS)
        self._folder = Path(tempfile.mkdtemp(prefix="onceflow-kinesis-"))
        if reshards:
            self.port = free_port()
            command = ["node", "-e", _MAIN, str(kinesalite()), str(self.port)]
            with (self._folder / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, cwd=self._folder, start_new_session=True
                )
        else:
            self._moto = ThreadedMotoServer("127.0.0.1", 0)
            self._moto.start()
            self.port = self._moto.get_host_and_port()[1]
        self.client: Any = boto3.client(
            "kinesis",
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"total_max_attempts": 1}, read_timeout=10),
        )
        self._wait_until_it_answers()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def place(self) -> Mapping[str, str]:
        """Options of a source."""
        return {"endpoint_url": self.url, "region": REGION}

    def new_stream(self, shards: int = 2) -> str:
        """The name of an empty stream."""
        name = f"s{uuid.uuid4().hex[:10]}"
        self.client.create_stream(StreamName=name, ShardCount=shards)
        self._wait_until_active(name)
        return name

    def put(self, stream: str, records: Iterable[tuple[str, bytes]]) -> None:
        """Records, each with its partition key, in this order."""
        for key, data in records:
            self.client.put_record(StreamName=stream, PartitionKey=key, Data=data)

    def put_many(self, stream: str, records: Sequence[tuple[str, bytes]]) -> None:
        """Up to 500 in one request."""
        entries = [{"PartitionKey": key, "Data": data} for key, data in records]
        answer = self.client.put_records(StreamName=stream, Records=entries)
        assert not answer["FailedRecordCount"], answer

    def shards(self, stream: str) -> list[dict[str, Any]]:
        """All of them, as they are listed."""
        found: list[dict[str, Any]] = self.client.list_shards(StreamName=stream)["Shards"]
        return found

    def open_shards(self, stream: str) -> list[dict[str, Any]]:
        """In the order of their hash keys."""
        found = [s for s in self.shards(stream) if "EndingSequenceNumber" not in s["SequenceNumberRange"]]
        return sorted(found, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))

    def split(self, stream: str, number: int = 0) -> None:
        """Split an open shard in two."""
        shard = self.open_shards(stream)[number]
        first, last = (int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        self.client.split_shard(
            StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((first + last) // 2)
        )
        self._wait_until_active(stream)

    def merge(self, stream: str, number: int = 0) -> None:
        """Merge an open shard with the next one."""
        left, right = self.open_shards(stream)[number : number + 2]
        self.client.merge_shards(
            StreamName=stream, ShardToMerge=left["ShardId"], AdjacentShardToMerge=right["ShardId"]
        )
        self._wait_until_active(stream)

    def let_a_day_pass(self) -> None:
        """25 hours on its clock: longer than it keeps records."""
        assert self._process is not None, "moto keeps records for ever"
        before = self.clock()
        self._process.send_signal(signal.SIGUSR2)
        self._wait_for_clock(before + dt.timedelta(hours=25))

    def wait_until_all_is_past(self) -> None:
        """Wait until what was put before arrived earlier than its clock says, which tells whole seconds.
        kinesalite lets the first records of a new shard arrive a second too late."""
        self._wait_for_clock(self.clock() + dt.timedelta(seconds=3))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name, value in self._environment.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        if self._moto is not None:
            self._moto.stop()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def clock(self) -> dt.datetime:
        """Its clock, in whole seconds, rounded down."""
        answer = self.client.list_streams()
        return email.utils.parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])

    @retry(wait=wait_fixed(0.05), stop=stop_after_delay(_DEADLINE_S), reraise=True)
    def _wait_for_clock(self, time: dt.datetime) -> None:
        assert self.clock() >= time

    @retry(wait=wait_fixed(0.05), stop=stop_after_delay(_DEADLINE_S), reraise=True)
    def _wait_until_it_answers(self) -> None:
        assert self._process is None or self._process.poll() is None, (self._folder / "log").read_text()
        self.client.list_streams()

    @retry(wait=wait_fixed(0.02), stop=stop_after_delay(_DEADLINE_S), reraise=True)
    def _wait_until_active(self, stream: str) -> None:
        found = self.client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
        assert found["StreamStatus"] == "ACTIVE"
