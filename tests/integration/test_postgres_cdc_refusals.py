"""What a server has to have for PostgresCdcSource: each thing that lacks ends it in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.postgres_cdc import PostgresCdcSource
from onceflow.runtime.contracts import SplitState
from onceflow.runtime.errors import DataLossError, Fatal
from tests import cdc_tables
from tests.cdc_tables import (
    MANY_SLOTS,
    SCHEMA,
    ends_with,
    first_splits,
    is_long,
    open_reader,
    read,
)
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres
OPTIONAL = {"before": "optional"}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(MANY_SLOTS) as server:
        yield server


@pytest.fixture
def make_table(server: PostgresServer) -> Callable[..., cdc_tables.Table]:
    return partial(cdc_tables.make_table, server)


# --- What is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ("DROP PUBLICATION {t}", {}, "there is no publication '{t}': CREATE PUBLICATION {t} FOR TABLE "),
        ("ALTER PUBLICATION {t} SET (publish = 'insert')", {}, "leaves out each update: ALTER PUBLICATION"),
        ("ALTER PUBLICATION {t} DROP TABLE {t}", {}, "not in publication '{t}': ALTER PUBLICATION {t} ADD"),
        ("ALTER PUBLICATION {t} SET TABLE {t} WHERE (id > 1)", {}, "has a WHERE for it"),
        ("ALTER PUBLICATION {t} SET TABLE {t} (id)", {}, "leaves out column 'name'"),
        ("ALTER TABLE {t} REPLICA IDENTITY DEFAULT", {}, 'IDENTITY FULL, or say before="optional"'),
        ("ALTER TABLE {t} REPLICA IDENTITY NOTHING", OPTIONAL, "does not tell which row was changed"),
        ("ALTER TABLE {t} DROP CONSTRAINT {t}_pkey", {}, 'has no primary key.*start="slot"'),
        ("ALTER TABLE {t} RENAME name TO nam", {}, "has no column 'name'; it has id, nam"),
        ("ALTER TABLE {t} ALTER id TYPE numeric", {}, "'id' is numeric in the table and int64 in the rows"),
        ("SELECT pg_create_physical_replication_slot('{t}')", {}, "is of another kind"),
        ("SELECT 1", {"table": "nothing"}, "is not there, or the role may not see it"),
        ("SELECT 1", {"create_slot": False}, "no replication slot '{t}': SELECT pg_create_logical"),
        (
            "ALTER TABLE {t} REPLICA IDENTITY DEFAULT",
            {**OPTIONAL, "of": pa.schema([("id", pa.int64()), pa.field("name", pa.string(), False)])},
            "field 'name' may not be null",
        ),
    ],
)
def test_what_lacks_is_one_sentence(change: str, options: dict[str, Any], said: str, make_table: Any) -> None:
    table = make_table()
    table.server.execute(change.format(t=table.name))
    named = {"slot": table.name, "publication": table.name, "table": table.name}
    given: dict[str, Any] = {"url": table.server.url, "of": SCHEMA, **named, **options}
    with pytest.raises(Fatal, match=said.format(t=table.name)):
        first_splits(PostgresCdcSource(**given))


def test_a_server_without_logical_decoding_is_refused() -> None:
    with PostgresServer({"wal_level": "replica"}) as server:
        source = PostgresCdcSource(url=server.url, table="t", of=SCHEMA, slot="s", publication="p")
        with pytest.raises(Fatal, match=r"wal_level=replica.*set wal_level=logical and start it again"):
            first_splits(source)


def test_a_role_that_may_not_replicate_is_refused(make_table: Any) -> None:
    table = make_table()
    table.server.execute(f"CREATE ROLE {table.name}_role LOGIN")
    url = table.server.url.replace("onceflow@", f"{table.name}_role@")
    words_of_15 = "must be superuser or replication role"
    with pytest.raises(Fatal, match=f"permission denied|{words_of_15}"):
        first_splits(table.source(url=url))


def test_a_truncated_table_ends_the_job_or_is_passed_by(make_table: Any) -> None:
    table = make_table()
    source = table.source(start="slot")
    splits = first_splits(source)
    table.server.execute(
        f"INSERT INTO {table.name} VALUES (1, 'a')",
        f"TRUNCATE {table.name}",
        f"INSERT INTO {table.name} VALUES (2, 'b')",
    )
    ends_with(Fatal, "was truncated", source, splits)
    skipping = table.source(start="slot", truncate="skip")
    with closing(open_reader(skipping, splits)) as reader:
        assert len(read(reader, is_long(2))) == 2


def test_a_checkpoint_of_another_database_is_refused(make_table: Any) -> None:
    table = make_table()
    source = table.source(start="slot")
    (split,) = first_splits(source)
    other = SplitState(split.split_id, {**split.position, "system": "1"})
    ends_with(DataLossError, "another database cluster", source, [other])
