"""Secrets are taken out of what is said: messages, logs, rows of failed records."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"
WHOLE_WORD_BELOW = 4
"""A shorter secret is hidden where it stands alone: the password "a" is not in each word with an a."""


def redacted(text: str, secrets: Iterable[str]) -> str:
    """The text with *** in the place of each secret. Empty secrets are none."""
    for secret in sorted({*secrets} - {""}, key=len, reverse=True):  # one may be a part of another
        if len(secret) >= WHOLE_WORD_BELOW:
            text = text.replace(secret, HIDDEN)
        else:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    return text
