"""The input of all comparisons, as scripts/purchases.py makes it: a script, so it is found by its folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from purchases import CLOSING_MS, START_MS, USERS, Purchases, load

__all__ = ["CLOSING_MS", "START_MS", "USERS", "Purchases", "load"]
