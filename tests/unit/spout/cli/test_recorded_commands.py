"""Commands say of recorded installations what they said before: text, JSON and exit codes."""

from __future__ import annotations

import pytest

from tests.support.recorded import COMMANDS, SITUATIONS, printed_in, recorded


@pytest.mark.sample(3)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_command_prints_what_was_recorded(situation: str) -> None:
    printed = printed_in(situation)
    expected = recorded()[situation]
    assert printed.keys() == expected.keys()
    for words, what in printed.items():
        assert what == expected[words], words


def test_the_recorded_letters_make_the_commands_say_many_things() -> None:
    """A recording in which all answers are alike would show nothing."""
    answers = {str(printed) for printed in recorded()["whole"].values()}
    assert len(answers) > len(COMMANDS) * 3 // 4
