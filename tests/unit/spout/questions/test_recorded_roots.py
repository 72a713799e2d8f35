"""`windhover roots` says of recorded installations what it said before: text, JSON and exit codes."""

from __future__ import annotations

import pytest

from tests.support.recorded import recorded
from tests.support.recorded_roots import COMMANDS, PATH, SITUATIONS, printed_in


@pytest.mark.sample(4)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_roots_prints_what_was_recorded(situation: str) -> None:
    printed = printed_in(situation)
    expected = recorded(PATH)[situation]
    assert printed.keys() == expected.keys()
    for words, what in printed.items():
        assert what == expected[words], words


def test_the_recorded_roots_make_the_command_say_many_things() -> None:
    """A recording in which all answers are alike would show nothing."""
    answers = {str(printed) for printed in recorded(PATH)["whole"].values()}
    assert len(answers) > len(COMMANDS) * 3 // 4
    situations = {str(printed["roots"]) for printed in recorded(PATH).values()}
    assert len(situations) > len(SITUATIONS) * 2 // 3
