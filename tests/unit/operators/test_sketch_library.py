"""What is said where the library of the sketches is not installed."""

import subprocess
import sys

WITHOUT = """
import sys
sys.modules["datasketches"] = None
from onceflow import approx_count_distinct
from onceflow.runtime.errors import UsageError
try:
    approx_count_distinct("note")
except UsageError as error:
    print(error)
"""


def test_without_the_library_a_sentence_says_what_to_install() -> None:
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, capture_output=True, check=True, timeout=120, text=True)
    assert done.stdout.endswith("here and where the slots run: pip install 'onceflow[sketches]'\n")
