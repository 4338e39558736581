"""Rules for a stream without a key: comments with a word of a list are left out, and nothing is shuffled."""

from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import (
    BroadcastCtx,
    BroadcastProcess,
    BroadcastState,
    Ctx,
    Job,
    WatermarkStrategy,
)


@dataclass(frozen=True)
class Comment:
    text: str
    ts: int


@dataclass(frozen=True)
class Blocked:
    word: str
    ts: int


class Clean(BroadcastProcess[Comment, Blocked, Comment]):
    """Holds comments in no state: a word counts from when it comes on."""

    words = BroadcastState("words", str, int)

    def process(self, record: Comment, ctx: Ctx) -> Iterator[Comment]:
        if not any(word in record.text for word, _ in self.words.items()):
            yield record

    def process_broadcast(self, rule: Blocked, ctx: BroadcastCtx) -> None:
        self.words.put(rule.word, rule.ts)


job = Job("comments")
times = WatermarkStrategy.bounded_out_of_orderness("1 s", event_time="ts")
comments = job.from_elements(Comment("good", 5), Comment("fine", 6), watermarks=times)
blocked = job.from_elements(Blocked("spam", 0), watermarks=times)
clean = comments.connect(blocked.broadcast()).process(Clean(), uid="clean").collect()
job.run(master="threads[2]")
assert sorted(each.text for each in clean) == ["fine", "good"]
