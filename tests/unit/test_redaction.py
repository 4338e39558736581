"""What is secret is in no text; what merely has its letters stays readable."""

from __future__ import annotations

import pytest

from onceflow.runtime.redaction import redacted


@pytest.mark.parametrize(
    ("text", "secrets", "said"),
    [
        ("login with hunter2 failed", ["hunter2"], "login with *** failed"),
        ("token=xhunter2x", ["hunter2"], "token=x***x"),
        ("key-2, key and plain", ["key", "key-2"], "***, *** and plain"),
        ("a broker that can't be reached", ["e"], "a broker that can't be reached"),
        ("password 'e', e=e; e", ["e"], "password '***', ***=***; ***"),
        ("abc of abcd, abc.", ["abc"], "*** of abcd, ***."),
        ("a+b and a.b", ["a."], "a+b and a.b"),
        ("nothing is secret", [""], "nothing is secret"),
    ],
)
def test_a_secret_is_hidden_and_words_are_not(text: str, secrets: list[str], said: str) -> None:
    """Four characters and more wherever they stand; fewer only where no word goes on around them."""
    assert redacted(text, secrets) == said
