"""Names of state files and staged output in a checkpoint folder.

They hold the attempt and the checkpoint's id, so attempts never meet, and what nobody references can be
told by its name (`retention.py`).
"""

from __future__ import annotations

from urllib.parse import quote

STATE_FOLDER = "state"
STAGED_FOLDER = "staged"


def attempt_folder(folder: str, attempt: int) -> str:
    return f"{folder}/attempt-{attempt:06d}"


def state_path(attempt: int, checkpoint_id: int, uid: str, subtask: int) -> str:
    return f"{checkpoint_prefix(attempt, checkpoint_id)}{quote(uid, safe='')}.{subtask}.arrows"


def checkpoint_prefix(attempt: int, checkpoint_id: int) -> str:
    """What the paths of all state files begin with that are written for this checkpoint."""
    return f"{attempt_folder(STATE_FOLDER, attempt)}/{checkpoint_id:010d}."
