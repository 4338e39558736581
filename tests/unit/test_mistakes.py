"""A mistake in a program that is named on the command line ends in one sentence, with the program's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.cli.load import load_job
from onceflow.runtime.errors import UsageError

PROGRAM = """
from dataclasses import dataclass
from onceflow import *
from onceflow.connectors.formats import Avro, Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink

@dataclass
class Purchase:
    user: str
    amount: int

def source(**options):
    given = {"bootstrap_servers": "x:1", "topics": ["t"], "value": Json(Purchase)} | options
    return KafkaSource(**given)

job = Job("mistaken")
stream = job.source(source(), WatermarkStrategy.monotonous())
"""
LINE = PROGRAM.count("\n") + 1


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "job.source([1, 2])",
            r"job\.source\(\.\.\.\) is \[1, 2\], a list: write job\.from_records\(rows\); expected a source",
        ),
        ("job.source(KafkaSource)", r"is the class KafkaSource: write KafkaSource\(\.\.\.\)"),
        ("job.source(source(), '2 s')", "watermarks is '2 s', a str: expected a strategy, as in Watermark"),
        (
            "stream.sink_to('out')",
            r"is 'out', a str: write stream\.to_files\('out'\); expected a sink, as in KafkaSink",
        ),
        ("stream.map('shout')", "'shout' is a str: expected a function"),
        ("stream.filter('user')", "'user' is a str: expected a function"),
        ("job.from_collection([1])", r"a Job has no 'from_collection': write job\.from_records\(rows\)$"),
        ("stream.key_bye('user')", r"a Stream has no 'key_bye' \(did you mean 'key_by'\?\)"),
        (
            "KafkaSource(bootstrap_server='x', topics=['t'], value=Json())",
            r"KafkaSource has no argument 'bootstrap_server' \(did you mean 'bootstrap_servers'\?\)$",
        ),
        (
            "KafkaSource(topics=['t'], value=Json())",
            "KafkaSource lacks bootstrap_servers; its arguments are",
        ),
        (
            "KafkaSource('x:1')",
            "KafkaSource is given more than it takes without a name; its arguments",
        ),
        ("KafkaSink('x:1', 't', keys='user')", r"KafkaSink has no argument 'keys' \(did you mean 'key'\?\)"),
        (
            "KafkaSink('x:1', 't', value=Purchase)",
            "value is the class Purchase: expected a format, as in Json",
        ),
        ("KafkaSink('x:1', 5)", "topic must be the name of a topic"),
        ("Json(Purchase, onnull='skip')", r"Json has no argument 'onnull' \(did you mean 'on_null'\?\)"),
        ("Avro(Purchase, registri='x')", r"Avro has no argument 'registri' \(did you mean 'registry'\?\)"),
        (
            "WatermarkStrategy.bounded_out_of_orderness('2 s', idle='1 s')",
            r"WatermarkStrategy\.bounded_out_of_orderness has no argument 'idle'(; its| .did)",
        ),
        ("sliding('10 s', slides='1 s')", r"sliding has no argument 'slides' \(did you mean 'slide'\?\)"),
        ("tumbling(sizes='10 s')", r"tumbling has no argument 'sizes' \(did you mean 'size'\?\)"),
        (
            "ValueState('last', float, ttl='an hour')",
            "state 'last': ttl='an hour' is not a duration",
        ),
        ("ListState('last', float, ttl='1 h', ttl_refresh='reads')", "ttl_refresh='reads': use 'write' or"),
        ("ValueState('last')", "ValueState lacks value_type; its arguments are name, value_type"),
        ("ValueState(5, int)", "state name 5: use letters"),
        (
            "Job('j', max_paralelism=8)",
            r"Job has no argument 'max_paralelism' \(did you mean 'max_parallelism'\?\)",
        ),
        (
            "Purchase('u')",
            r"TypeError: Purchase\.__init__\(\) missing 1 required positional argument: 'amount'",
        ),
        ("int('x')", "ValueError: invalid literal for int"),
        # Through Python's own library, and through a package of somebody else's: still the program's line.
        (
            "stream.key_by('user').window(tumbling('1 s')).aggregate(n=sum_('amout'))",
            r"there is no column 'amout' \(did you mean 'amount'\?\)",
        ),
        ("__import__('json').loads('x')", "JSONDecodeError: Expecting value"),
        ("__import__('numpy').linalg.inv('x')", "LinAlgError: 0-dimensional"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_programs_line(tmp_path: Path, line: str, sentence: str) -> None:
    path = tmp_path / "mistaken.py"
    path.write_text(PROGRAM + line + "\n")
    with pytest.raises(UsageError, match=sentence) as caught:
        load_job(str(path))
    assert str(caught.value).startswith(f"{path}:{LINE}: ")
    assert "\n" not in str(caught.value)
