"""The connectors that the documents write, as modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
if str(EXAMPLES) not in sys.path:
    sys.path.append(str(EXAMPLES))

own_format = importlib.import_module("own_format")
own_sink = importlib.import_module("own_sink")
own_source = importlib.import_module("own_source")
own_target = importlib.import_module("own_target")
own_upserts = importlib.import_module("own_upserts")
