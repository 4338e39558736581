"""A registry is the fold of its changes: whatever was asked of it, a second one from the journal is alike."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.connectors.kafka.embedded.registry.requests import RefusedRequest, Requests
from onceflow.connectors.kafka.embedded.registry.subjects import Change, Subjects

SUBJECT = st.sampled_from(["a", "b"])
STEPS = st.one_of(
    st.tuples(st.just("put"), SUBJECT, st.sampled_from(["int", "long", "string", "bytes"])),
    st.tuples(st.just("delete"), SUBJECT, st.booleans()),
    st.tuples(st.just("level"), st.sampled_from(["", "a"]), st.sampled_from(["NONE", "FULL", ""])),
)


@given(st.lists(STEPS, max_size=15))
@example([("put", "a", "int"), ("delete", "a", False), ("delete", "a", True), ("put", "a", "long")])
@example([("put", "a", "int"), ("put", "a", "long"), ("delete", "a", False), ("put", "b", "int")])
def test_a_registry_that_reads_the_journal_again_knows_the_same(steps: list[Any]) -> None:
    journal: list[Change] = []
    subjects, ids = Subjects(), dict[int, str]()

    def keep(changes: list[Change]) -> None:
        for change in changes:
            journal.append(change)
            subjects.apply(change)

    requests = Requests(subjects, keep)

    def do(method: str, path: tuple[str, ...], body: Any = None, **query: str) -> None:
        with contextlib.suppress(RefusedRequest):
            requests.answer(method, path, query, body)

    for kind, subject, what in steps:
        if kind == "put":
            do("POST", ("subjects", subject, "versions"), {"schema": f'"{what}"'})
        elif kind == "delete":
            do("DELETE", ("subjects", subject), permanent=str(what))
        elif what:
            do("PUT", ("config", subject) if subject else ("config",), {"compatibility": what})
        else:
            do("DELETE", ("config", subject) if subject else ("config",))
        for schema_id, schema in subjects.schemas.items():
            assert ids.setdefault(schema_id, schema.text) == schema.text, "an id never means another schema"
        assert set(ids) == set(subjects.schemas), "and never goes away"
    again = Subjects()
    for change in journal:
        again.apply(change)
    assert again == subjects
