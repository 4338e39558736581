"""Which packages an extra needs that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.runtime.api.extras import missing_packages

METADATA = """\
Metadata-Version: 2.1
Name: shelf-of-tests
Version: 1
Provides-Extra: there
Provides-Extra: away
Provides-Extra: deep
Provides-Extra: old
Requires-Dist: shelf-that-nobody-needs
Requires-Dist: pyarrow>=18; extra == "there"
Requires-Dist: pyarrow>=18; extra == "away"
Requires-Dist: shelf-client (>=2) ; extra == 'away'
Requires-Dist: shelf-of-tests[there,away]; extra == "deep"
Requires-Dist: shelf-client; python_version < "3.8" and extra == "old"
"""


@pytest.mark.parametrize(
    ("extra", "missing"),
    [("there", []), ("away", ["shelf-client"]), ("deep", ["shelf-client"]), ("old", []), ("none", [])],
)
def test_packages_that_are_not_there(
    extra: str, missing: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shelf_of_tests-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert missing_packages("shelf-of-tests", extra) == missing
