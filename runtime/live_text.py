"""What a person reads of a running job: a line for each event, and the line that is drawn anew each second.

For the terminal (onceflow/cli/report.py) and for notebooks (api/notebook_display.py) alike. Texts of Rich:
its styles are colours here and HTML there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.text import Text

from onceflow.runtime.records import WATERMARK_MAX_MS
from onceflow.runtime.report import JobProgress

WAITS_MAX = 3
"""How many of the things that connectors wait for are shown; the rest is counted."""


def event_text(name: str, fields: Mapping[str, Any]) -> Text | None:
    """An event as `Reporter.event` gets it; None for one that only programs read."""
    describe = _EVENT_TEXTS.get(name)
    return None if describe is None else describe(fields)


# --- What happens -------------------------------------------------------------------------------------


def _started(fields: Mapping[str, Any]) -> Text:
    slots = ", ".join(f"{slot['slot']} = pid {slot['pid']}" for slot in fields["slots"])
    return Text(f"attempt {fields['attempt']}: slots {slots}")


def _failed(fields: Mapping[str, Any]) -> Text:
    attempt = "opening the job" if fields["attempt"] is None else f"attempt {fields['attempt']}"
    row = f" (failure {fields['failures']} in a row)" if fields["failures"] > 1 else ""
    again = f"; again in {fields['restart_in_ms'] / 1000:g} s{row}"
    return Text.assemble((f"{attempt} failed", "red"), f": {fields['reason']}{again}")


def _rescaled(fields: Mapping[str, Any]) -> Text:
    return Text.assemble(("rescaled", "green"), f" from {fields['slots_before']} to {fields['slots']} slots")


def _restarted(fields: Mapping[str, Any]) -> Text:
    return Text.assemble(("restarted", "yellow"), f" from checkpoint {fields['checkpoint_id']}")


def _checkpoint_failed(fields: Mapping[str, Any]) -> Text:
    return Text.assemble((f"checkpoint {fields['checkpoint_id']} failed", "red"), f": {fields['reason']}")


def _finished(fields: Mapping[str, Any]) -> Text:
    """Why it failed is the command's own last sentence, on standard error."""
    is_good = fields["outcome"] in ("finished", "stopped", "cancelled")
    line = Text.assemble((fields["outcome"], "green" if is_good else "red"))
    if is_good:
        line.append(f": {fields['reason']}")
    line.append(f"; last checkpoint {_known(fields['checkpoint_id'])}")
    if fields["restarts"]:
        line.append(f"; restarts {fields['restarts']}")
    if fields["late_records"]:
        line.append(f"; {fields['late_records']:,} late records", "yellow")
    return line


def _started_from(fields: Mapping[str, Any]) -> Text:
    """Which operators and sources go on, and which do not."""
    found = [(kind, fields[kind]) for kind in ("kept", "evolved", "reset", "new", "dropped") if fields[kind]]
    kinds = "; ".join(f"{kind}: {', '.join(uids)}" for kind, uids in found)
    of = f"checkpoint {fields['checkpoint_id']} of job {fields['job']!r}"
    before, now = fields["max_parallelism_before"], fields["max_parallelism"]
    groups = "" if before == now else f"; max_parallelism {now} in place of {before}"
    found_text = f"{kinds or 'nothing was kept'}{groups}"
    return Text(f"starts from savepoint {fields['savepoint_id']} ({of}); {found_text}")


def _went_back(fields: Mapping[str, Any]) -> Text:
    """What is abandoned, and where output lies that will be written again."""
    text = f"goes back to checkpoint {fields['to']}; those up to {fields['past']} are abandoned"
    for uid, places in fields["doubled"].items():
        shown = f"is in {', '.join(map(_place, places))}" if places else "it has written since then"
        text += f"; sink {uid!r} writes again what {shown}"
    return Text(text, "yellow" if fields["doubled"] else "")


def _place(place: Mapping[str, Any]) -> str:
    if "message" in place:
        return str(place["message"])
    return f"{place['topic']}[{place['partition']}] from offset {place['begin']} to {place['end'] - 1}"


def _stop_requested(fields: Mapping[str, Any]) -> Text:
    before = "ends its sources, and " if fields["drains"] else ""
    return Text(f"{before}stops after a last checkpoint; a second signal stops at once")


_EVENT_TEXTS: Mapping[str, Callable[[Mapping[str, Any]], Text]] = {
    "job_started": lambda f: Text(f"{f['job']} starts on {f['master']}"),
    "encrypted": lambda f: Text(f"driver and slots speak {f['protocol']}: {f['asked_by']}"),
    "metrics_started": lambda f: Text(f"metrics at http://{f['host']}:{f['port']}/metrics"),
    "slots_started": _started,
    "attempt_failed": _failed,
    "restarted": _restarted,
    "rescaled": _rescaled,
    "started_from_savepoint": _started_from,
    "went_back": _went_back,
    "state_changed": lambda f: Text(f["text"], "yellow"),
    "checkpoint_failed": _checkpoint_failed,
    "stop_requested": _stop_requested,
    "damage_healed": lambda f: Text(f["message"], "yellow"),
    "entries_without_checksum": lambda f: Text(f["message"], "yellow"),
    "splits_discovered": lambda f: Text(f"found {', '.join(f['splits'])}"),
    "warning": lambda f: Text.assemble(("warning", "yellow"), f": {f['reason']}"),
    "job_finished": _finished,
}


# --- How it is now ------------------------------------------------------------------------------------


def progress_texts(progress: JobProgress) -> list[Text]:
    """The line, with what matters most in front, since a narrow terminal cuts it; and what is waited for."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(progress.job, "bold")
    if progress.phase != "running":
        line.append(f"  {progress.phase}", "yellow")
    line.append(f"  in {_rate(progress.records_in_per_s)}  out {_rate(progress.records_out_per_s)}")
    for count, name in (
        (progress.late_records, "late"),
        (progress.dead_letters, "dead letters"),
        (progress.failed_records, "failed"),
        (progress.restarts, "restarts"),
    ):
        if count:
            line.append(f"  {name} {count:,}", "yellow")
    line.append(f"  watermark {_time(progress.watermark_ms)}{_lag(progress.watermark_lag_ms)}")
    if progress.last_checkpoint_failure is not None:
        line.append(f"  checkpoint failed: {_one_line(progress.last_checkpoint_failure)}", "red")
    elif progress.last_checkpoint_id is None:
        line.append("  no checkpoint yet")
    else:
        line.append(f"  checkpoint {progress.last_checkpoint_id} ({progress.last_checkpoint_ms:,} ms)")
    if progress.slots:
        line.append(f"  busy {progress.busy_ratio:.0%}  memory {progress.rss_bytes / 2**20:,.0f} MiB")
    waits = [f"  waits: {_one_line(reason)}" for reason in progress.waiting[:WAITS_MAX]]
    if len(progress.waiting) > WAITS_MAX:
        waits.append(f"  waits: for {len(progress.waiting) - WAITS_MAX} more")
    return [line, *(Text(wait, "yellow", no_wrap=True, overflow="ellipsis") for wait in waits)]


def _one_line(reason: str) -> str:
    return " ".join(reason.split())


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}/s" if per_s < 10_000 else f"{per_s / 1_000:,.0f}k/s"


def _known(value: int | None) -> str:
    return "none" if value is None else str(value)


def _time(watermark_ms: int | None) -> str:
    if watermark_ms is None:
        return "-"
    if watermark_ms == WATERMARK_MAX_MS:
        return "end"
    try:
        return f"{datetime.fromtimestamp(watermark_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{watermark_ms} ms"


def _lag(lag_ms: int | None) -> str:
    return "" if lag_ms is None else f" (lag {lag_ms / 1000:,.1f} s)"
