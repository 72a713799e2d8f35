"""In which leader's epoch roots were emitted, so that no other record is taken for one that was
lost.

A log that was cut grows again with other records under the same offsets, and these have higher
leader epochs (`acker.kafka.epochs`). A session knows an epoch in which the log had what it emits.
It says so with each `Init`, an acker keeps it, and says so with the verdicts of lost roots; then a
replay worker compares.

The schemas of `Init`, State and `Verdicts` are published and stay as they are. So the epochs are
in a header of these records, `LEADER_EPOCHS`, which readers of former versions pass over. Its
value is int64 little-endian: rows of a source, a position of it, and the epoch from that position
on. Of a source positions ascend, for example

    (65536, 0, 4), (65536, 1500, 7)

says that positions 0 to 1499 were emitted in epoch 4, and all from 1500 on in epoch 7. What is
missing is unknown, and is not compared as of emission.

Source: docs/design/protocol.md, section 5.1, "A log that was cut".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from acker.wire.events import Lost, SourceRun, Verdicts, positions
from acker.wire.headers import Headers

UNKNOWN_EPOCH: Final = -1
"""As `acker.kafka.port.NO_EPOCH`."""

LEADER_EPOCHS: Final = "windhover.leader-epochs"

STEPS_MAX: Final = 16
"""So many steps of a source are kept. Leaders change seldom.

Of older open roots the epoch is forgotten.
"""

ROWS_MAX: Final = 1_500
"""So many rows are written beside State or verdicts, 36,000 bytes, for which those records have room."""

ROWS_READ_MAX: Final = 10_000
"""So many rows are read: an `Init` may have one for each of its runs."""

EPOCH_MAX: Final = (1 << 31) - 1
"""Kafka's epochs are int32."""

_ROW_BYTES: Final = 24


class EpochStep(NamedTuple):
    """From this position of a source on, up to its next step, roots were emitted in this epoch."""

    source: int
    first_position: int
    epoch: int


class LeaderEpochs:
    """The epochs in which roots were emitted, as a few steps of each source."""

    def __init__(self, steps: Iterable[EpochStep] = ()) -> None:
        """Begin with some steps."""
        self._steps: dict[int, list[EpochStep]] = {}
        for step in steps:
            self.add(step)

    def add(self, step: EpochStep) -> None:
        """Add a step: the leader epoch in which roots of a source were emitted, from a position on.

        A step is left out if it has the epoch of the last step of its source, or if it begins at
        that step or before it. A source keeps its newest `STEPS_MAX` steps.
        """
        steps = self._steps.setdefault(step.source, [])
        if steps and step.epoch == steps[-1].epoch:
            return
        if steps and step.first_position <= steps[-1].first_position:
            return
        # a first step with `UNKNOWN_EPOCH` would mean the same as no step
        if steps or step.epoch != UNKNOWN_EPOCH:
            steps.append(step)
        del steps[:-STEPS_MAX]  # drop the oldest

    def at(self, source: int, position: int) -> int:
        """Return the epoch in which a root was emitted, or `UNKNOWN_EPOCH`."""
        steps = self._steps.get(source, [])
        # with steps from 0 and 1500 on, it is one step of position 1499, and two of position 1500
        steps_begun = bisect_right(steps, position, key=_first_position)
        return steps[steps_begun - 1].epoch if steps_begun else UNKNOWN_EPOCH

    def headers(self) -> Headers:
        """Return the header for State, of the first `ROWS_MAX` steps."""
        return epochs_header(chain.from_iterable(self._steps.values()))

    def headers_of(self, verdicts: Verdicts) -> Headers:
        """Return the header of a record of verdicts: the steps in which its lost roots were emitted."""
        steps: set[EpochStep] = set()
        for lost in verdicts.lost:
            steps.update(self._steps_of(lost))
        return epochs_header(sorted(steps))

    def _steps_of(self, lost: Lost) -> Iterator[EpochStep]:
        """Yield the steps, each a leader epoch from a position on, in which some lost roots were
        emitted.

        The roots are of one source and cause.
        """
        steps = self._steps.get(lost.source)
        if not steps:
            return
        lost_positions = positions(lost.positions)  # they ascend
        first_lost, last_lost = int(lost_positions[0]), int(lost_positions[-1])
        # the number of steps that begin at the first of them or before it; the last of these has it
        steps_begun = bisect_right(steps, first_lost, key=_first_position)
        for step in steps[max(0, steps_begun - 1) :]:
            if step.first_position <= last_lost:
                yield step


def _first_position(step: EpochStep) -> int:
    return step.first_position


def epochs_header(steps: Iterable[EpochStep], rows_max: int = ROWS_MAX) -> Headers:
    """Pack the first `rows_max` steps into a header; no header if there are none."""
    rows = np.array(list(steps)[:rows_max], "<i8")
    return ((LEADER_EPOCHS, rows.tobytes()),) if len(rows) else ()


def epochs_of_runs(runs: Iterable[SourceRun], epochs: Mapping[int, int]) -> Headers:
    """Return the header of an init that says in which leader epochs it emits.

    A step, an epoch from a position on, is written for each source whose epoch is known.

    Args:
        runs: that the init emits, in any order; the step of a source begins with the lowest of
            them.
        epochs: the leader's epoch by source.
    """
    first_positions: dict[int, int] = {}
    for run in runs:
        first_positions[run.source] = min(run.start, first_positions.get(run.source, run.start))
    steps: list[EpochStep] = []
    for source, first_position in first_positions.items():
        epoch = epochs.get(source, UNKNOWN_EPOCH)
        if epoch != UNKNOWN_EPOCH:
            steps.append(EpochStep(source, first_position, epoch))
    return epochs_header(steps, ROWS_READ_MAX)


def read_epochs(headers: Headers) -> LeaderEpochs:
    """Return the leader epochs in a header of a record.

    None at all if any part is not as we write it.
    """
    value = dict(headers).get(LEADER_EPOCHS) or b""
    if len(value) % _ROW_BYTES or len(value) > ROWS_READ_MAX * _ROW_BYTES:
        return LeaderEpochs()
    rows = np.frombuffer(value, "<i8").reshape(-1, 3)
    epochs = rows[:, 2]
    if not bool(np.all((epochs >= UNKNOWN_EPOCH) & (epochs <= EPOCH_MAX))):
        return LeaderEpochs()
    return LeaderEpochs(EpochStep(*row) for row in rows.tolist())
