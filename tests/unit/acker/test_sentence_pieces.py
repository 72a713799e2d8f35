"""Pieces of a sentence, which a page marks one by one, beside the line that a terminal shows."""

from __future__ import annotations

import pytest

from acker.untrusted import END, ISOLATE, sentence_line, sentence_pieces

MARK = "\N{COMBINING ACUTE ACCENT}"
HEBREW = "\N{HEBREW LETTER ALEF}"


@pytest.mark.parametrize("text", [HEBREW, f"{HEBREW}{MARK}", "a", f"a{MARK}b", ""])
def test_pieces_put_together_are_the_line(text: str) -> None:
    sentence = f"it failed: {ISOLATE}{text}{END}, in g"
    pieces = list(sentence_pieces(sentence))
    assert [piece.is_isolated for piece in pieces] == [False, True, False]
    assert "".join(piece.text for piece in pieces) == sentence_line(sentence)


def test_a_piece_begins_with_no_accent_of_the_letter_before_it() -> None:
    first, second = sentence_pieces(f"a{ISOLATE}{MARK}{HEBREW}{END}")
    assert (first.text, second.text) == ("a", f"%CC%81{HEBREW}")
