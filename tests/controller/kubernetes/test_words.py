"""What an API server says when it says no: its own sentence, as one short line."""

import pytest

from paritas.controller.kubernetes.words import refusal_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"message": "pods is forbidden"}', "pods is forbidden"),
        ('{"message": 3}', "3"),
        ('{"reason": "x"}', '{"reason": "x"}'),
        ("[1]", "[1]"),
        ("[" * 99_000, "[" * 300),
        ("<html>\n  Bad   Gateway\n", "<html> Bad Gateway"),
        (" \n", "no reason given"),
        ("x" * 400, "x" * 300),
    ],
)
def test_the_own_sentence_or_what_it_said(text, words):
    assert refusal_words(text) == words


def test_who_tells_more_says_how_much():
    assert refusal_words("x" * 400, most_chars=350) == "x" * 350
