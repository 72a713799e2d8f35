"""In which leader's epoch roots were emitted, as headers have it."""

from __future__ import annotations

import numpy as np
import pytest

from acker.kafka.port import NO_EPOCH
from acker.wire.events import Lost, SourceRun, Verdicts, pack_positions
from acker.wire.leader_epochs import (
    EPOCH_MAX,
    LEADER_EPOCHS,
    ROWS_MAX,
    ROWS_READ_MAX,
    STEPS_MAX,
    UNKNOWN_EPOCH,
    EpochStep,
    LeaderEpochs,
    epochs_header,
    epochs_of_runs,
    read_epochs,
)
from acker.wire.verdict import Verdict

A, B = 65_536, 65_537


def lost_at(source: int, *lost_positions: int) -> Lost:
    """Return lost roots at some positions."""
    packed = pack_positions(np.array(lost_positions))
    return Lost(Verdict.FAILED, "g", "t", "id", "", "", "", 0, 0, 0, source, packed)


def test_the_wire_and_the_port_mean_the_same_by_no_epoch() -> None:
    """O622: a root of which it is not said has the one and the other."""
    assert UNKNOWN_EPOCH == NO_EPOCH


def test_each_root_has_the_epoch_of_the_last_step_before_it() -> None:
    """O622: also at the borders, and of each source its own."""
    epochs = LeaderEpochs([EpochStep(A, 10, 4), EpochStep(A, 20, 7), EpochStep(B, 0, 1)])
    assert [epochs.at(A, position) for position in (9, 10, 19, 20, 1_000)] == [NO_EPOCH, 4, 4, 7, 7]
    assert (epochs.at(B, 15), epochs.at(99, 15)) == (1, NO_EPOCH)


def test_a_step_that_is_not_behind_the_others_changes_nothing() -> None:
    """O622: what was emitted first was emitted in that epoch."""
    epochs = LeaderEpochs([EpochStep(A, 10, 4), EpochStep(A, 10, 5), EpochStep(A, 3, 6)])
    assert [epochs.at(A, position) for position in (3, 10, 11)] == [NO_EPOCH, 4, 4]


def test_a_session_that_does_not_say_its_epoch_ends_a_step() -> None:
    """O624: a query of a former version goes on behind one of this version."""
    epochs = LeaderEpochs([EpochStep(A, 0, 4), EpochStep(A, 10, NO_EPOCH), EpochStep(A, 20, 4)])
    assert [epochs.at(A, position) for position in (9, 10, 19, 20)] == [4, NO_EPOCH, NO_EPOCH, 4]
    assert read_epochs(epochs.headers()).at(A, 15) == NO_EPOCH


def test_of_many_steps_the_oldest_are_forgotten() -> None:
    """O622: their roots are of unknown epochs, and never of a wrong one."""
    epochs = LeaderEpochs(EpochStep(A, number, number) for number in range(STEPS_MAX + 3))
    assert [epochs.at(A, position) for position in (2, 3, STEPS_MAX + 2)] == [NO_EPOCH, 3, STEPS_MAX + 2]


def test_verdicts_have_the_steps_of_their_lost_roots_alone() -> None:
    """O622: a record has room for them, however many sources there are."""
    epochs = LeaderEpochs(EpochStep(A, 10 * number, number) for number in range(8))
    epochs.add(EpochStep(B, 0, 1))
    verdicts = Verdicts((SourceRun(B, 0, 5),), (), (lost_at(A, 25, 31), lost_at(A, 33)))
    read = read_epochs(epochs.headers_of(verdicts))
    assert [read.at(A, position) for position in (25, 31, 33)] == [2, 3, 3]
    assert [read.at(A, 19), read.at(A, 70), read.at(B, 1)] == [NO_EPOCH, 3, NO_EPOCH]
    assert epochs.headers_of(Verdicts((SourceRun(A, 0, 5),), (), ())) == ()
    assert epochs.headers_of(Verdicts((), (), (lost_at(99, 1),))) == ()


def test_an_init_has_the_epoch_of_each_of_its_sources_once() -> None:
    """O622: those that are unknown are missing."""
    runs = [SourceRun(A, 20, 30), SourceRun(A, 5, 10), SourceRun(B, 0, 5), SourceRun(7, 0, 5)]
    read = read_epochs(epochs_of_runs(runs, {A: 4, B: NO_EPOCH}))
    assert [read.at(A, 5), read.at(A, 25), read.at(B, 0), read.at(7, 0)] == [4, 4, NO_EPOCH, NO_EPOCH]
    assert epochs_of_runs(runs, {}) == ()


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"x",
        bytes(23),
        bytes(25),
        np.array([A, 0, EPOCH_MAX + 1], "<i8").tobytes(),
        np.array([A, 0, 4, A, 9, -2], "<i8").tobytes(),
        bytes(24 * (ROWS_READ_MAX + 1)),
    ],
)
def test_what_no_program_of_ours_wrote_counts_as_missing(value: bytes | None) -> None:
    """O625: nobody ends by it, and no epoch comes of it."""
    assert read_epochs(((LEADER_EPOCHS, value),)).headers() == ()


def test_a_header_has_no_more_rows_than_its_record_has_room_for() -> None:
    """O622: the sources that are left out are of unknown epochs."""
    ((_, value),) = epochs_header(EpochStep(source, 0, 1) for source in range(ROWS_MAX + 5))
    assert value is not None
    assert len(value) == 24 * ROWS_MAX
