"""TokenMerge: the tokens of loops that come on several channels, made one. Pure."""

from __future__ import annotations

from onceflow.runtime.records import LoopToken


class TokenMerge:
    """A token goes on when it has come on each channel that has not ended, since it is to be behind the rows
    of all. It is quiet if it is so on all. A channel from outside of the loop brings none before its end, so
    a loop ends after all that comes into it."""

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._ended: set[int] = set()
        self._come: dict[str, dict[int, LoopToken]] = {}

    def take(self, channel: int, token: LoopToken) -> None:
        """It was read from this channel."""
        self._come.setdefault(token.loop, {})[channel] = token

    def end(self, channel: int) -> None:
        """This channel has ended."""
        self._ended.add(channel)

    def merged(self) -> LoopToken | None:
        """The next token that goes on, if one has come on all channels."""
        for loop, come in self._come.items():
            if len(self._ended | come.keys()) == self._channels:
                del self._come[loop]
                number = max(token.round for token in come.values())
                return LoopToken(loop, number, all(token.is_quiet for token in come.values()))
        return None
