"""What the user asked of writeStream and write of a SinkFormat, checked at the door."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onceflow.connectors.staged_commits.writer import TargetSink
from onceflow.runtime.contracts import CommittingSink, PartitionedSink, SettlingSink, Sink
from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest
from onceflow.structured_streaming.any_sink.sink_format import SinkFormat
from onceflow.structured_streaming.options import OF_SPARK

_OF_ALL = ("uid", "staging")
_UID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_UID_OF_A_WRITE = "write"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Picklable: it travels to the tasks."""

    format: str
    sink: Sink
    uid: str
    is_named: bool
    """Whether the user gave the uid."""
    checkpoint: str | None
    staging: str | None


def write_options(form: SinkFormat, options: Mapping[str, str], door: str) -> WriteOptions:
    """`door`: "writeStream" or "write". Raises OptionError, and what the sink says of its own options."""
    here = {name.lower(): name for name in (*form.options, *_OF_ALL, *OF_SPARK)}
    own: dict[str, Any] = {}
    ours: dict[str, str] = {}
    for given, value in options.items():
        name = here.get(given.lower())
        if name is None:
            if given.lower() == "path":
                raise OptionError(f"{door} of {form.name} takes no path ({value!r}): options say where to")
            known = [each for each in here.values() if each not in OF_SPARK]
            raise OptionError(
                f"{form.name} has no option {given!r} for {door}{nearest(given, known)}: it has "
                f"{', '.join(known)}"
            )
        if name in form.options:
            own[name] = form.options[name](name, value)
        else:
            ours[name] = value
    for name in form.needs:
        if name not in own:
            raise OptionError(f'{door} of {form.name} needs .option("{name}", ...)')
    _check(form, ours, is_stream=door == "writeStream")
    sink = form.make(own)
    _check_sink(form, sink)
    uid = ours.get("uid")
    return WriteOptions(
        form.name,
        sink,
        uid or _UID_OF_A_WRITE,
        uid is not None,
        ours.get("checkpointLocation"),
        ours.get("staging"),
    )


def _check(form: SinkFormat, ours: Mapping[str, str], *, is_stream: bool) -> None:
    uid = ours.get("uid")
    if uid is None and is_stream:
        raise OptionError(
            f'writeStream of {form.name} needs .option("uid", NAME): a name of your own for this output, '
            "which stays the same forever; it is remembered under it what is written"
        )
    if uid is not None and not _UID.fullmatch(uid):
        raise OptionError(f"uid {uid!r} must be 1 to 100 letters, digits, '.', '_' or '-'")
    if is_stream and not ours.get("checkpointLocation"):
        raise OptionError(
            f'writeStream of {form.name} needs .option("checkpointLocation", FOLDER) on the query itself: '
            "what is written is tied to it"
        )
    if uid is not None and not is_stream and "staging" not in ours:
        raise OptionError(
            f'write of {form.name} with a uid needs .option("staging", FOLDER) in storage that outlives this '
            "program: what was promised under the uid is kept there until it is written"
        )


def _check_sink(form: SinkFormat, sink: Sink) -> None:
    if isinstance(sink, TargetSink):
        return
    assert isinstance(sink, CommittingSink), f"{form.name}: see sink_format.py for what can be registered"
    settles = isinstance(sink, SettlingSink) and sink.settles_keys
    if isinstance(sink, PartitionedSink) and sink.partition_columns and not settles:
        raise OptionError(
            f"{form.name} can't write by key ({', '.join(sink.partition_columns)}): Spark brings the rows of "
            "a key to several tasks; leave the key out, or take onceflow's runtime"
        )
