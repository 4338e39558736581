"""How a notebook shows a job: its plan, or a sentence on why there is none."""

from __future__ import annotations

from onceflow import Job, WatermarkStrategy, count, tumbling

EXPECTED = """\
job **shown**, max_parallelism 128

| chain | operator |  | columns | goes to |
| --- | --- | --- | --- | --- |
| 0 | rows | from_elements | user string, ts int64 | per-user.columns |
| 0 | per-user.columns | columns | user string | per-user (by key user) |
| 1 | per-user | window 10000 ms by user | user string, window_start int64, window_end int64, \
count int64 | out |
| 1 | out | to_files; exactly once: files end with each checkpoint, and are seen when the checkpoint in \
which they end is durable |  |  |
"""


def job() -> Job:
    made = Job("shown")
    rows = made.from_elements(
        {"user": "<b>", "ts": 1}, watermarks=WatermarkStrategy.monotonous("ts"), uid="rows"
    )
    windows = rows.key_by("user").window(tumbling("10 s"))
    windows.aggregate(count=count(), uid="per-user").to_files("out", uid="out")
    return made


def test_as_markdown() -> None:
    assert job()._repr_markdown_() == EXPECTED


def test_as_html() -> None:
    shown = job()._repr_html_()
    assert "job <b>shown</b>" in shown
    assert "<td style='text-align:left'>per-user (by key user)</td>" in shown


def test_names_are_no_html() -> None:
    made = Job("shown")
    made.from_elements({"<b>": 1}).print()
    assert "&lt;b&gt; int64" in made._repr_html_()


def test_a_job_that_can_not_run_says_why() -> None:
    made = Job("shown")
    made.from_elements(1, uid="loose")
    assert "can't be run yet: the rows of &#x27;loose&#x27;" in made._repr_html_()
    assert "can't be run yet: the rows of 'loose' (from_elements) go nowhere" in made._repr_markdown_()
