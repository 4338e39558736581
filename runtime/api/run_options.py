"""The options of a run as people write them, in a program or on the command line."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, cast

from onceflow.runtime.api.until import given_until
from onceflow.runtime.arguments import PathText, path_text
from onceflow.runtime.checkpoint.options import IN_FLIGHT_MS, CheckpointOptions
from onceflow.runtime.checkpoint.start_changes import start_changes
from onceflow.runtime.driver.options import (
    DEFAULT_MASTER,
    Guarantee,
    RunOptions,
    absolute_url,
    barrier_options,
    restart_strategy,
    state_options,
)
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.state_tables.merged_keys import Merge
from onceflow.runtime.state_tables.rekeyed import OtherKeys

DEFAULT_INTERVAL = "1 s"


def run_options(  # noqa: PLR0913 - one for each option of `onceflow run`
    checkpoint_dir: str,
    *,
    master: str = DEFAULT_MASTER,
    parallelism: int | None = None,
    checkpoint_interval: str | int = DEFAULT_INTERVAL,
    checkpoint_timeout: str | int = "10 min",
    retained: int = 3,
    slot_timeout: str | int = "30 s",
    guarantee: str = "exactly-once",
    barriers: str = "aligned",
    alignment_timeout: str | int | None = None,
    in_flight: str | int = IN_FLIGHT_MS,
    state_backend: str = "heap",
    state_memory: str | int | None = None,
    incremental: bool | None = None,
    restart: str = "exponential",
    spark_conf: Mapping[str, str] | None = None,
    control_port: int = 0,
    start_from: int | PathText | None = None,
    accept_duplicates_after: int | None = None,
    allow_dropped_state: bool = False,
    map_uid: Iterable[tuple[str, str]] = (),
    reset_offsets: Mapping[str, Any] | None = None,
    rekey: Mapping[str, Any] | None = None,
    until: str | dt.datetime | None = None,
    tls: bool = False,
    params: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RunOptions:
    """Options as people write them, checked. Raises OptionError naming the option."""
    given, start = Guarantee.parse(guarantee), _start(start_from)
    other_keys = {uid: _other_keys(uid, each) for uid, each in (rekey or {}).items()}
    through = barrier_options(barriers, alignment_timeout, in_flight, given)
    return RunOptions(
        checkpoint_dir=absolute_url(checkpoint_dir),
        master=master,
        parallelism=_slots(parallelism),
        guarantee=given,
        barriers=through,
        state=state_options(state_backend, state_memory, incremental),
        checkpoints=CheckpointOptions(
            interval_ms=duration_ms(checkpoint_interval, "checkpoint_interval"),
            timeout_ms=duration_ms(checkpoint_timeout, "checkpoint_timeout"),
            halts=through.halts,
            retained=retained,
            restart=restart_strategy(restart),
        ),
        slot_timeout_ms=duration_ms(slot_timeout, "slot_timeout"),
        spark_conf=spark_conf or {},
        control_port=control_port,
        start_from=start if isinstance(start, int) else None,
        accept_duplicates_after=_accepted(accept_duplicates_after, start),
        start_savepoint=absolute_url(start) if isinstance(start, str) else None,
        start_changes=start_changes(map_uid, reset_offsets or {}, isinstance(start, str), other_keys),
        other_keys=other_keys,
        allow_dropped_state=allow_dropped_state,
        until=given_until(until),
        tls=tls,
        params=params or {},
        storage_options=storage_options or {},
    )


def _slots(parallelism: int | None) -> int | None:
    if parallelism is not None and parallelism < 1:
        raise OptionError(f"parallelism={parallelism}: at least 1 slot is needed")
    return parallelism


def _other_keys(uid: str, given: Any) -> OtherKeys:
    key, merge = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if not callable(key) or not (merge is None or callable(merge)):
        raise OptionError(f"rekey={{{uid!r}: {given!r}}}: write a function of the key, or (function, merge)")
    return OtherKeys(key, cast("Merge | None", merge))


def _start(given: object) -> int | str | None:
    start = path_text(given)
    if start is None or (isinstance(start, int | str) and not isinstance(start, bool)):
        return start
    raise OptionError(f"start_from={given!r}: write a checkpoint's id, or the folder or URL of a savepoint")


def _accepted(checkpoint_id: int | None, start_from: int | str | None) -> int | None:
    if checkpoint_id is not None and checkpoint_id != start_from:
        raise OptionError(
            f"accept_duplicates_after={checkpoint_id}: it is the checkpoint to go back to, and start_from "
            f"(--from) is {start_from!r}: give both the same id"
        )
    return checkpoint_id
