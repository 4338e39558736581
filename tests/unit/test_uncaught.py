"""What ends a program that nobody catches it in: a sentence for a mistake, a traceback for all else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceflow.runtime.uncaught import WHOLE_ERROR

JOB = """
import sys
{first}
from dataclasses import dataclass
from onceflow import Job
{before}
@dataclass
class Number:
    n: int

def inverse(number: Number) -> Number:
    return Number(1 // number.n)

job = Job("m")
if __name__ == "__main__":
    job.from_elements(Number(1), Number(0)).map(inverse, uid="inverse").print()
    {line}
"""
LINE = JOB.count("\n") - 1
SAYS_ALL = f"(set {WHOLE_ERROR}=1 to see the whole error)\n"
MISSPELT = 'job.run(master="threads[1]", restrat="none")'


def ended(
    folder: Path, line: str, before: str = "", whole: str = "", option: str = "-u", first: str = ""
) -> tuple[int, str]:
    """The exit code and the standard error of a program with this line, run with an option of Python's."""
    program = folder / "program.py"
    program.write_text(JOB.format(line=line, before=before, first=first).removeprefix("\n"))
    environment = {**os.environ, WHOLE_ERROR: whole}
    run = subprocess.run(
        [sys.executable, option, str(program)],
        env=environment, input="", capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    return run.returncode, run.stderr


def test_a_mistake_ends_with_its_line_and_as_onceflow_run_does(tmp_path: Path) -> None:
    code, said = ended(tmp_path, MISSPELT)
    assert code == 2
    line = f"onceflow: {tmp_path / 'program.py'}:{LINE}: Job.run has no argument 'restrat'"
    assert said == f"{line} (did you mean 'restart'?)\n{SAYS_ALL}"


def test_a_job_that_failed_says_why(tmp_path: Path) -> None:
    code, said = ended(tmp_path, 'job.run(master="threads[1]", restart="none")')
    assert code == 1
    assert said.startswith("onceflow: job 'm' failed: operator 'inverse': inverse failed on the record in")
    assert said.endswith(f"ZeroDivisionError: integer division or modulo by zero\n{SAYS_ALL}")


@pytest.mark.parametrize(
    ("line", "before", "whole"),
    [
        (MISSPELT, "", "1"),
        ("raise ValueError('mine')", "", ""),
        ("raise Mine('mine')", "from onceflow import Retryable\nclass Mine(Retryable): pass", ""),
        ("raise Mine('mine')", "from onceflow.runtime.errors import *\nclass Mine(UsageError): pass", ""),
    ],
    ids=["asked for", "another error", "the user's own", "derived from a mistake"],
)
def test_all_else_has_its_traceback(tmp_path: Path, line: str, before: str, whole: str) -> None:
    code, said = ended(tmp_path, line, before, whole)
    assert code == 1
    assert said.startswith("Traceback (most recent call last):")


def test_who_catches_it_and_who_has_a_hook_of_his_own_gets_the_error(tmp_path: Path) -> None:
    caught = f"""
    try:
        {MISSPELT}
    except Exception as error:
        sys.exit(type(error).__name__)"""
    assert ended(tmp_path, caught.lstrip()) == (1, "OptionError\n")
    after = "sys.excepthook = lambda kind, error, where: print('reported', kind.__name__, file=sys.stderr)"
    assert ended(tmp_path, MISSPELT, after) == (1, "reported OptionError\n")
    assert ended(tmp_path, MISSPELT, first=after) == (1, "reported OptionError\n")


def test_pythons_prompt_does_not_end(tmp_path: Path) -> None:
    code, said = ended(tmp_path, MISSPELT, option="-i")
    assert code == 0
    assert "Traceback" in said
