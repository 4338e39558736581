"""docs/deployment.md: its commands on a standalone cluster, read from the page, with other addresses; and
what a job says there when a piece is missing.

The Worker runs where one folder is its own, as on another machine, if this is allowed here. The environment
that is packed has onceflow by a link to this checkout, or, in the soak, installed as the page says.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.deployment_page import commands, program, said, unit
from tests.integration.standalone import LOOPBACK, Standalone

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent
START_MS = 1_700_000_000_000
RECORDS = 5_000
OWN_FOLDER = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
"""Runs a command that sees an empty folder where another one is for all others."""

FILES = {
    "totals.py": """
import dataclasses
import prices
import rates
from shop.names import checked
from onceflow import Job, WatermarkStrategy, count, sum_, tumbling
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclasses.dataclass(frozen=True)
class Event:
    user: str
    amount: int
    ts: int


def priced(event: Event) -> Event:
    return Event(checked(event.user), prices.cents(event.amount) // rates.CENTS, event.ts)


def build(arguments: list[str]) -> Job:
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    servers = options["--bootstrap-servers"]
    job = Job("totals")
    watermarks = WatermarkStrategy.bounded_out_of_orderness("200 ms", event_time="ts")
    source = KafkaSource(bootstrap_servers=servers, topics=[options["--input"]], value=Json(Event))
    windows = job.source(source, watermarks=watermarks).map(priced).key_by("user").window(tumbling("500 ms"))
    totals = windows.aggregate(count=count(), total=sum_("amount"))
    sink = KafkaSink(bootstrap_servers=servers, topic=options["--output"], key="user")
    totals.select("user", "window_end", "count", "total").sink_to(sink)
    return job
""",
    "prices.py": "def cents(amount: int) -> int:\n    return amount * 100\n",
    "lib/rates.py": "CENTS = 100\n",
    "submit_totals.py": program("By spark-submit"),
}
LINKED = "import site\nfor folder in {folders!r}:\n    site.addsitedir(folder)\n"


class Place:
    """The page's machines: a folder for the driver, a cluster, and what stands for the page's addresses."""

    def __init__(self, folder: Path, cluster: Standalone, master: str) -> None:
        self.folder = folder
        self.cluster = cluster
        self._master = master
        self.path = str(SCRIPTS)
        self.own = folder / "own"
        """A folder that the Worker does not share with the driver."""

    def line(self, command: str, arguments: Mapping[str, str] | None = None) -> str:
        """A command of the page, here; `arguments`: other words for some of its own."""
        addresses = {
            "spark-master:7077": self._master,
            "driver-machine": LOOPBACK,
            "/mnt/checkpoints": str(self.folder / "shared"),
            "./onceflow": str(REPOSITORY),
        }
        for word, ours in [*(arguments or {}).items(), *addresses.items()]:
            command = command.replace(word, ours)
        return command

    def shell(self, command: str, arguments: Mapping[str, str] | None = None) -> list[str]:
        """A command of the page as one process, so that signals come to it."""
        return ["sh", "-c", f"exec env {self.line(command, arguments)}"]

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": f"{self.path}{os.pathsep}{os.environ['PATH']}", "SPARK_LOCAL_IP": LOOPBACK}

    def run(self, command: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", self.line(command)],
            cwd=self.folder,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def free_port() -> int:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port: int = free.getsockname()[1]
    return port


def can_have_its_own_folder(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*OWN_FOLDER, str(folder), "true"], capture_output=True, check=False)
    return tried.returncode == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The files of the program, and a Master and a Worker started as the page says."""
    folder = tmp_path_factory.mktemp("deployment")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with zipfile.ZipFile(folder / "lib" / "shop.zip", "w") as shop:
        shop.writestr("shop/__init__.py", "")
        shop.writestr("shop/names.py", "def checked(user: str) -> str:\n    return user\n")
    (folder / "spark").mkdir()
    (folder / "own").mkdir()
    place = Place(folder, Standalone(folder / "spark"), f"{LOOPBACK}:{free_port()}")
    ports = {"SPARK_MASTER_PORT": place.line("spark-master:7077").split(":")[1]}
    ports |= {"SPARK_MASTER_WEBUI_PORT": "0", "SPARK_WORKER_WEBUI_PORT": "0"}
    env = {**place.env, **ports, "SPARK_WORKER_DIR": str(folder / "spark" / "work")}
    own = [*OWN_FOLDER, str(place.own)] if can_have_its_own_folder(place.own) else []
    master, worker = (
        shlex.split(place.line(each, {"--host spark-master": f"--host {LOOPBACK}"}))
        for each in commands("A standalone cluster")
    )
    place.cluster.start_command("master", master, env=env)
    place.cluster.start_command("worker", [*own, *worker], env=env)
    yield place
    place.cluster.close()


@pytest.fixture(scope="module", params=["linked", pytest.param("installed", marks=pytest.mark.soak)])
def environment(place: Place, request: pytest.FixtureRequest) -> Place:
    """Where the environment is packed. Of onceflow it has a link to this checkout and to what that needs, or
    all of it, installed."""
    shutil.rmtree(place.folder / "environment", ignore_errors=True)
    (place.folder / "environment.tar.gz").unlink(missing_ok=True)
    make, install, pack = commands("Python on the Workers")
    steps = [make, install, pack]
    if request.param == "linked":
        steps = [f"{make} --without-pip", "", pack]
    for step in steps:
        if step:
            done = place.run(step)
            assert done.returncode == 0, done.stderr
        else:
            packages = next((place.folder / "environment").glob("lib/python*/site-packages"))
            folders = [each for each in sys.path if each.endswith("site-packages")]
            (packages / "sitecustomize.py").write_text(LINKED.format(folders=folders))
    if request.param == "installed":
        place.path = str(place.folder / "environment" / "bin")
    return place


@pytest.fixture
def topics(broker: Any, new_topic: Any, feed: Any) -> dict[str, str]:
    """The page's words for brokers and topics, and ours; in the input there are records, and what closes all
    their windows."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    data = feed(servers, source, 2)
    data.close(data.load(RECORDS, START_MS))
    return {
        "kafka:9092": servers,
        "--input events": f"--input {source}",
        "--output totals": f"--output {output}",
    }


@pytest.fixture
def is_exact(topics: dict[str, str], judge: Any, follow: Any) -> Callable[[Any], None]:
    """Waits until the job has written as many rows as there have to be, and judges them."""
    servers, source, output = (each.split()[-1] for each in topics.values())

    def check(job: Any) -> None:
        expected = judge(servers).expected(source)
        follow(servers, output).wait_rows(len(expected), job, timeout=240)
        verdict = judge(servers).verdict(expected, output)
        assert verdict.is_exact, verdict

    return check


def test_a_job_runs_exactly_in_the_environment_that_was_sent_and_is_looked_at_and_stopped(
    environment: Place, topics: dict[str, str], is_exact: Callable[[Any], None], start_process: Any
) -> None:
    run, status, stop = commands("Run")
    job = start_process(environment.shell(run, topics), environment.env, environment.folder)
    is_exact(job)
    assert environment.run(f"{status} --json").stdout.count('"phase": "running"') == 1
    for pid in job.slots():
        command = (Path("/proc") / str(pid) / "cmdline").read_text().split("\0")
        assert command[0] == "./environment/bin/python"
    stopped = environment.run(stop)
    assert stopped.returncode == 0, stopped.stderr
    assert job.wait() == 0, job.story()
    assert not job.named("attempt_failed"), job.story()


@pytest.mark.soak
def test_a_program_that_runs_itself_is_run_by_spark_submit(
    environment: Place, topics: dict[str, str], is_exact: Callable[[Any], None], start_process: Any
) -> None:
    submit, stop = commands("By spark-submit")
    job = start_process(environment.shell(submit, topics), environment.env, environment.folder)
    is_exact(job)
    stopped = environment.run(stop)
    assert stopped.returncode == 0, stopped.stderr
    assert job.wait() == 0, job.story()
    assert "on request, after a last checkpoint\n" in job.lines


def bare(folder: Path, python: str = "python3", linked: bool = False) -> str:
    """A Python of its own, with nothing in it; or with a link to what this one has."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    if linked:
        (packages,) = folder.glob("lib/python*/site-packages")
        folders = [str(folder / "first"), *(each for each in sys.path if each.endswith("site-packages"))]
        (packages / "sitecustomize.py").write_text(LINKED.format(folders=folders))
    return str(folder / "bin" / "python")


def other_python() -> str:
    """A Python of another minor version; the test is left out if there is none."""
    ours = f"3.{sys.version_info.minor}"
    near = [str(each) for each in Path(sys.base_prefix).parent.glob("*/bin/python3.1[0-9]")]
    for found in filter(None, [*near, *(shutil.which(f"python3.{minor}") for minor in range(11, 20))]):
        if not found.endswith(ours):
            return found
    pytest.skip("there is no Python of another minor version here")


def no_such_python(folder: Path) -> dict[str, str]:
    return {"PYSPARK_PYTHON": str(folder / "bin" / "python")}


def no_onceflow(folder: Path) -> dict[str, str]:
    return {"PYSPARK_PYTHON": bare(folder)}


def another_python(folder: Path) -> dict[str, str]:
    return {"PYSPARK_PYTHON": bare(folder, other_python(), linked=True)}


def another_onceflow(folder: Path) -> dict[str, str]:
    python = bare(folder, linked=True)
    package = folder / "first" / "onceflow"
    shutil.copytree(REPOSITORY / "onceflow", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "runtime" / "version.py").write_text('VERSION = "0.0.9"\n')
    return {"PYSPARK_PYTHON": python}


def module_only_here(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(["lib", "lib/shop.zip"])}


WITHOUT = {" --archives environment.tar.gz#environment": "", "PYSPARK_PYTHON=./environment/bin/python ": ""}
WITHOUT_MODULES = {**WITHOUT, " --py-files lib/rates.py,lib/shop.zip": ""}
ELSEWHERE = {
    **WITHOUT,
    "driver.host=driver-machine": f"driver.host=127.0.0.2 --conf spark.driver.bindAddress={LOOPBACK}",
}
MISSING = {
    "no onceflow in it": (WITHOUT, no_onceflow),
    "a module of the program's": (WITHOUT_MODULES, module_only_here),
    "a way from executors to the driver": (ELSEWHERE, None),
    "no such Python on a Worker": (WITHOUT, no_such_python),
    "another minor version of Python": (WITHOUT, another_python),
    "another version of onceflow": (WITHOUT, another_onceflow),
}
QUICK = ("no onceflow in it",)
"""The others are for the soak. Where their sentences come from has quick tests of its own:
unit/hosts/spark/test_worker_environment.py, integration/test_users_program.py."""


@pytest.mark.parametrize(
    "what", [pytest.param(each, marks=[] if each in QUICK else [pytest.mark.soak]) for each in MISSING]
)
def test_what_is_missing_ends_the_job_at_once_in_one_sentence(
    what: str, place: Place, topics: dict[str, str], start_process: Any, tmp_path: Path
) -> None:
    changed, prepare = MISSING[what]
    env = {**place.env, **(prepare(tmp_path / "other") if prepare is not None else {})}
    command = place.shell(commands("Run")[0], {**changed, **topics, "/mnt/checkpoints": str(tmp_path)})
    fails(start_process(command, env, place.folder), what)


def test_a_checkpoint_folder_that_is_not_shared_ends_the_job_before_a_record_is_read(
    place: Place, topics: dict[str, str], start_process: Any
) -> None:
    if not can_have_its_own_folder(place.own):
        pytest.skip("mounts of a process's own need root, and unshare")
    own = {"/mnt/checkpoints": str(place.own)}
    job = start_process(
        place.shell(commands("Run")[0], {**WITHOUT, **topics, **own}), place.env, place.folder
    )
    fails(job, "a checkpoint folder that is not shared")
    assert not job.named("first_record")
    assert not list(place.own.rglob("*.probe"))


def fails(job: Any, what: str) -> None:
    """Once, and with the page's sentence."""
    assert job.wait(480) == 1, job.story()
    assert said(what).search(job.errors()), job.errors()
    assert not job.named("restarted"), job.story()
    assert len(job.named("attempt_started")) == 1, job.story()
    assert "Traceback" not in job.errors()


def test_a_service_manager_sees_the_exit_codes_that_the_unit_counts_on(
    place: Place, topics: dict[str, str], is_exact: Callable[[Any], None], start_process: Any, tmp_path: Path
) -> None:
    """What ends by itself is started again and goes on; a stop ends with 0; the same wrong command is not run
    again. That `cancel` ends with 3 is a test of test_operating.py."""
    service = unit("One machine")["Service"]
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"].split() == ["2", "3"]
    assert service["KillMode"] == "mixed"
    here = {"/srv/totals/environment/bin": str(SCRIPTS), "/var/lib/onceflow": str(tmp_path), **topics}
    command = place.shell(service["ExecStart"], here)
    env = {**place.env, **module_only_here(tmp_path)}
    job = start_process(command, env, place.folder)
    is_exact(job)
    job.send(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    again = start_process(command, env, place.folder)
    assert again.wait_event("attempt_started")["checkpoint_id"] > 0
    again.wait_event("checkpoint_completed")
    again.send(signal.SIGTERM)
    assert again.wait() == 0, again.story()
    command = place.shell(service["ExecStart"].replace(" run ", " run --parallelism 3 "), here)
    wrong = start_process(command, env, place.folder)
    assert wrong.wait() == 2, wrong.story()
