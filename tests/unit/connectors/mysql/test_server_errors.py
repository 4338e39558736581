"""What errors of MySQL and MariaDB mean, by their numbers and words."""

from __future__ import annotations

import pymysql
import pytest

from onceflow.connectors.mysql.server_errors import meaning, meaning_of_commit
from onceflow.connectors.sql_tables.session import BadRowsError
from onceflow.runtime.errors import Fatal, Indeterminate, Retryable


@pytest.mark.parametrize(
    ("code", "text", "name"),
    [
        (3819, "Check constraint 'small' is violated.", "small"),
        (4025, "CONSTRAINT `small` failed for `shop`.`t`", "small"),
        (1062, "Duplicate entry '1' for key 't.by_email'", "by_email"),
        (
            1452,
            "fails (`shop`.`t`, CONSTRAINT `has_parent` FOREIGN KEY (`p`) REFERENCES `x` (`id`))",
            "has_parent",
        ),
        (1406, "Data too long for column 'who' at row 7", "who"),
        (1366, "Incorrect string value: 'x' for column `shop`.`t`.`who` at row 1", "who"),
        (1364, "Field 'm' doesn't have a default value", "m"),
    ],
)
def test_a_bad_row_is_named_by_its_constraint_or_column(code: int, text: str, name: str) -> None:
    bad = meaning(pymysql.IntegrityError(code, text), "writing")
    assert isinstance(bad, BadRowsError)
    assert (bad.constraint, bad.code) == (name, str(code))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (pymysql.OperationalError(1213, "Deadlock found"), Retryable),
        (pymysql.OperationalError(1205, "Lock wait timeout exceeded"), Retryable),
        (pymysql.OperationalError(2006, "MySQL server has gone away"), Retryable),
        (pymysql.OperationalError(2013, "Lost connection"), Retryable),
        (pymysql.OperationalError(1290, "running with the --read-only option"), Retryable),
        (pymysql.InterfaceError(0, ""), Retryable),
        (pymysql.InternalError("Packet sequence number wrong"), Retryable),
        (pymysql.OperationalError(1045, "Access denied"), Fatal),
        (pymysql.OperationalError(2003, "[SSL: CERTIFICATE_VERIFY_FAILED]"), Fatal),
        (pymysql.ProgrammingError(1146, "Table 't' doesn't exist"), Fatal),
    ],
)
def test_what_passes_by_itself_is_tried_again(error: pymysql.Error, kind: type[Exception]) -> None:
    assert type(meaning(error, "writing")) is kind


def test_only_a_collision_says_for_sure_that_a_commit_is_not_done() -> None:
    assert isinstance(meaning_of_commit(pymysql.OperationalError(1213, "Deadlock")), Retryable)
    for code in (2013, 2006, 1180, 1317):
        assert isinstance(meaning_of_commit(pymysql.OperationalError(code, "x")), Indeterminate)
