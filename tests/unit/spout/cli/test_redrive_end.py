"""How a redrive ends for who started it: the exit code says whether letters died again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from acker.errors import CheckFailed
from replay.handling.outcomes import LetterOutcome
from replay.handling.redrive import RedriveProgress
from replay.records.letters import LetterAction
from replay.records.redrives import RedriveEnd
from spout.cli.common import INTERRUPTED
from spout.cli.dlq import print_end_of_redrive


def ended(*, died: int, waits: bool, end: RedriveEnd = RedriveEnd.DONE) -> int:
    outcomes = Counter({LetterOutcome.ACKED: 4, LetterOutcome.DIED: died})
    progress = RedriveProgress(letter_count=5, handled_count=5, outcomes=outcomes, end=end)
    return print_end_of_redrive("r1", LetterAction.REPLAYED, progress, Path("topics.yaml"), waits=waits)


def test_who_waits_for_letters_that_die_again_gets_an_error() -> None:
    """D1204: a script took it for done."""
    with pytest.raises(CheckFailed, match=r"redrive r1: 4 acked, 1 died again; `windhover dlq list`"):
        ended(died=1, waits=True)


@pytest.mark.parametrize(
    ("died", "waits", "end", "code"),
    [
        (0, True, RedriveEnd.DONE, 0),
        (1, False, RedriveEnd.DONE, 0),
        (1, True, RedriveEnd.CANCELLED, INTERRUPTED),
    ],
)
def test_else_the_exit_code_is_as_before(*, died: int, waits: bool, end: RedriveEnd, code: int) -> None:
    """D1204: who does not wait does not know it, and a cancelled one is cancelled."""
    assert ended(died=died, waits=waits, end=end) == code
