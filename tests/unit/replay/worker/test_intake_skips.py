"""How much of the first verdict record a worker skips when it goes on behind a progress."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from acker.wire.events import Lost, Verdict, Verdicts
from acker.wire.leader_epochs import LeaderEpochs
from replay.records.due import Progress
from replay.worker.accept import Intake

SOURCE = 65_536


def verdicts_of(*positions: int) -> Verdicts:
    """Return the verdicts of a record: these positions failed."""
    packed = np.array(positions, "<i8").tobytes()
    lost = Lost(Verdict.FAILED, "g", "t", "id", "split", "ValueError", "bad", 0, 0, 0, SOURCE, packed)
    return Verdicts(acked=(), absent=(), lost=(lost,) if positions else ())


def accepted(intake: Intake, limit: int) -> list[int]:
    """Return the positions of all batches of at most so many roots, one batch after the other."""
    positions: list[int] = []
    while True:
        batch = intake.next_batch(limit)
        if not batch.roots and batch.progress == intake.progress:
            return positions
        positions += [root.position for root in batch.roots]
        intake.record_committed(batch.progress)


RECORDS = {8: (80, 81, 82), 9: (90, 91), 10: (), 11: (110,)}
"""By the offset of a verdict record: the positions that it has."""

CASES: dict[str, tuple[Sequence[int], Sequence[int]]] = {
    "all are there": ((8, 9, 10, 11), (81, 82, 90, 91, 110)),
    "the one that was begun is missing": ((9, 10, 11), (90, 91, 110)),
    "so is the next one": ((10, 11), (110,)),
    "none is left": ((), ()),
}


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize(("offsets", "positions"), CASES.values(), ids=list(CASES))
def test_only_of_the_record_that_was_begun_is_anything_skipped(
    offsets: Sequence[int], positions: Sequence[int], limit: int
) -> None:
    """A person may mark a damaged record, so that it is never read, after a part of it was accepted."""
    intake = Intake(Progress(next=8, skip=1))
    for offset in offsets:
        intake.add(offset, verdicts_of(*RECORDS[offset]), LeaderEpochs())
    intake.read_to = 12
    assert accepted(intake, limit) == list(positions)
    assert intake.progress == Progress(12, skip=0)
