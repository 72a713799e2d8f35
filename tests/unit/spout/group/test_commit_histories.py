"""Any history of commits, by whomever, held against a plain table of what each group has committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import LogError, Unreachable, WindhoverError
from acker.identity import position_at, source_of
from acker.kafka.port import NO_EPOCH, ReadTo, TopicPartition
from spout.group.commits import (
    COMMIT_AGAIN_MS,
    COMMIT_EVERY_MS,
    COMMIT_IDLE_MS,
    VERIFY_EVERY_MS,
    Committer,
)
from spout.group.starting import COMMITTED_BY
from spout.planning.intake import SourceCursor

A: Final[int] = source_of(1, 0)
B: Final[int] = source_of(1, 1)
C: Final[int] = source_of(2, 0)
PLACES: Final = {
    A: TopicPartition("sentences", 0),
    B: TopicPartition("sentences", 1),
    C: TopicPartition("others", 0),
}
SPECS: Final[Any] = {s: SimpleNamespace(source=s, place=place) for s, place in PLACES.items()}


@dataclass
class Broker:
    """What a broker has of one group, which notes what it is sent, and may refuse it."""

    commits: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    sent: list[tuple[dict[int, int], dict[int, int]]] = field(default_factory=list)
    error: WindhoverError | None = None
    looks: int = 0

    def committed(self, group: str, places: Mapping[TopicPartition, object]) -> dict[TopicPartition, int]:
        """Return offsets."""
        assert group == "g"
        return {place: self.commits[place][0] for place in places if place in self.commits}

    def committed_epochs(
        self, group: str, places: Mapping[TopicPartition, object]
    ) -> dict[TopicPartition, int]:
        """Return epochs."""
        assert group == "g"
        return {place: self.epochs[place] for place in places if place in self.epochs}

    def commit_metadata(
        self, group: str, places: Mapping[TopicPartition, object]
    ) -> dict[TopicPartition, str]:
        """Return who committed."""
        assert group == "g"
        self.looks += 1
        if self.error is not None:
            raise self.error
        return {place: self.commits[place][1] for place in places if place in self.commits}

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        text: str,
        epochs: Mapping[TopicPartition, int],
    ) -> None:
        """Take offsets, or refuse them."""
        assert (group, text) == ("g", COMMITTED_BY)
        if self.error is not None:
            raise self.error
        sources = {place: source for source, place in PLACES.items()}
        self.sent.append(
            (
                {sources[place]: offset for place, offset in offsets.items()},
                {sources[place]: epoch for place, epoch in epochs.items()},
            )
        )
        self.commits |= {place: (offset, text) for place, offset in offsets.items()}

    def put(self, source: int, offset: int, text: str = COMMITTED_BY) -> None:
        """Let somebody commit."""
        self.commits[PLACES[source]] = offset, text

    def committer(self) -> Committer:
        """Begin."""
        log: Any = self
        return Committer(log, "g", SPECS)

    def take_sent(self) -> list[dict[int, int]]:
        """Return what was sent since the last call."""
        sent, self.sent = self.sent, []
        return [offsets for offsets, _ in sent]


STEPS = st.lists(
    st.dictionaries(st.sampled_from([A, B, C]), st.tuples(st.integers(0, 2), st.integers(0, 5)), min_size=1),
    max_size=12,
)


@given(STEPS, st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 5)))
def test_a_commit_rises_within_a_generation_and_a_later_one_may_begin_below(
    steps: Sequence[Mapping[int, tuple[int, int]]], before: Mapping[int, int]
) -> None:
    """S100: by source; of what was committed before the process began no generation is known."""
    broker = Broker()
    for source, offset in before.items():
        broker.put(source, offset)
    committer = broker.committer()
    table = dict(before)
    generations: dict[int, int] = {}
    for step in steps:
        committable = {source: position_at(*at) for source, at in step.items()}
        due = {}
        for source, (generation, offset) in step.items():
            last = table.get(source, 0)
            is_later = source in generations and generation > generations[source]
            if offset > last or (offset < last and is_later):
                due[source] = offset
        assert committer.commit(committable) == bool(due)
        assert broker.take_sent() == ([due] if due else [])
        table |= due
        generations |= {source: step[source][0] for source in due}
        assert committer.committed() == table


def test_a_group_without_commits_has_none_and_commits_nothing_at_offset_0() -> None:
    broker = Broker()
    committer = broker.committer()
    assert not committer.commit({A: position_at(0, 0), B: position_at(3, 0)})
    assert not committer.commit({})
    assert (broker.sent, committer.committed(), committer.failures) == ([], {}, 0)
    assert committer.refused == ""


def test_a_source_that_begins_again_may_be_committed_below_whatever_its_generation() -> None:
    broker = Broker()
    committer = broker.committer()
    committer.commit({A: position_at(0, 7), B: position_at(0, 7)})
    committer.allow_lower_commit(A)
    assert committer.commit({A: position_at(0, 2), B: position_at(0, 2)})
    assert broker.take_sent()[1:] == [{A: 2}]
    assert not committer.commit({A: position_at(0, 1)})


@pytest.mark.parametrize(("idle", "every_ms"), [(True, COMMIT_IDLE_MS), (False, COMMIT_EVERY_MS)])
def test_commits_come_now_and_then_and_sooner_when_nothing_is_pending(idle: bool, every_ms: int) -> None:
    broker = Broker()
    committer = broker.committer()
    offsets = iter(range(1, 100))
    calls: list[int] = []

    def step(now_ms: int) -> bool:
        def committable() -> dict[int, int]:
            calls.append(now_ms)
            return {A: position_at(0, next(offsets))}

        return committer.step(committable, now_ms, idle=idle)

    times_ms = [1_000, 1_000, 1_001, 1_000 + every_ms - 1, 1_000 + every_ms, 999 + every_ms]
    assert [step(ms) for ms in times_ms] == [True, False, False, False, True, True]
    assert calls == [1_000, 1_000 + every_ms, 999 + every_ms], "a clock that was set back waits for nothing"
    assert not committer.step(dict, 900_000, idle=idle)


def test_a_look_at_the_commits_comes_half_a_minute_after_the_first_step_and_after_each_other() -> None:
    broker = Broker()
    committer = broker.committer()
    first_ms = 7_000
    looks: list[int] = []
    for now_ms in (
        first_ms,
        first_ms + VERIFY_EVERY_MS - 1,
        first_ms + VERIFY_EVERY_MS + COMMIT_IDLE_MS,
        first_ms + 2 * VERIFY_EVERY_MS,
        first_ms + 2 * VERIFY_EVERY_MS + COMMIT_IDLE_MS,
        first_ms,
        first_ms + COMMIT_IDLE_MS,
        first_ms,
    ):
        committer.step(dict, now_ms, idle=True)
        looks.append(broker.looks)
    assert looks == [0, 0, 1, 1, 2, 3, 3, 3]


def verified(broker: Broker, committer: Committer, done: Mapping[int, int], now_ms: int) -> None:
    """Let a look come."""
    committer.step(lambda: done, now_ms, idle=True)
    broker.sent.clear()
    committer.step(lambda: done, now_ms + VERIFY_EVERY_MS, idle=True)


def test_a_look_learns_what_became_of_each_commit() -> None:
    """One is as it was, one an earlier process has put back, one somebody moved, and a look is no failure."""
    broker = Broker()
    committer = broker.committer()
    done = {A: position_at(0, 9), B: position_at(0, 8), C: position_at(0, 7)}
    committer.step(lambda: done, 0, idle=True)
    broker.put(B, 3)
    broker.put(C, 2, "by hand")
    verified(broker, committer, done, 1_000)
    assert broker.take_sent() == [{B: 8}]
    assert committer.committed() == {A: 9, B: 8, C: 7}
    assert {s: (m.place, m.ours, m.theirs) for s, m in committer.moved.items()} == {C: (PLACES[C], 7, 2)}
    broker.put(C, 7)
    verified(broker, committer, done, 100_000)
    assert (committer.moved, committer.failures) == ({}, 0)


def test_what_the_broker_has_forgotten_is_committed_again_and_nothing_else() -> None:
    broker = Broker()
    committer = broker.committer()
    done = {A: position_at(0, 9), B: position_at(0, 8), C: position_at(0, 7)}
    committer.step(lambda: done, 0, idle=True)
    del broker.commits[PLACES[A]]
    committer.allow_lower_commit(B)
    del broker.commits[PLACES[B]]
    broker.put(C, 2, "by hand")
    verified(broker, committer, {}, 1_000)
    assert broker.take_sent() == [{A: 9}]


def renewals(broker: Broker, committer: Committer, times_ms: Sequence[int]) -> list[int]:
    """Return at which of these times commits were sent."""
    sent: list[int] = []
    for now_ms in times_ms:
        committer.step(dict, now_ms, idle=True)
        if broker.take_sent():
            sent.append(now_ms)
    return sent


def test_renewals_are_so_far_apart_and_a_refused_one_comes_with_the_next_look() -> None:
    broker = Broker()
    committer = broker.committer()
    committer.step(lambda: {A: position_at(0, 9)}, 0, idle=True)
    broker.sent.clear()
    look_ms = VERIFY_EVERY_MS
    times_ms = [look_ms, look_ms + COMMIT_AGAIN_MS - 1, look_ms + COMMIT_AGAIN_MS - 1 + look_ms]
    assert renewals(broker, committer, times_ms) == times_ms[2:]
    renewed_ms = times_ms[2]
    assert renewals(broker, committer, [renewed_ms + COMMIT_AGAIN_MS - 1]) == []
    commit, broker.commit = broker.commit, refusing  # type: ignore[method-assign, assignment]
    assert renewals(broker, committer, [renewed_ms + COMMIT_AGAIN_MS + look_ms]) == []
    assert committer.failures == 1
    broker.commit = commit  # type: ignore[method-assign]
    again_ms = renewed_ms + COMMIT_AGAIN_MS + 2 * look_ms
    assert renewals(broker, committer, [again_ms, again_ms + look_ms]) == [again_ms]
    assert renewals(broker, committer, [again_ms - 1]) == [again_ms - 1], "the clock was set back"


def refusing(*_arguments: object) -> None:
    raise LogError("no")


def test_a_commit_that_is_made_again_is_no_renewal_of_the_others() -> None:
    broker = Broker()
    committer = broker.committer()
    committer.step(lambda: {A: position_at(0, 9), B: position_at(0, 8)}, 0, idle=True)
    renewals(broker, committer, [VERIFY_EVERY_MS])
    del broker.commits[PLACES[A]]
    middle_ms = VERIFY_EVERY_MS + COMMIT_AGAIN_MS - VERIFY_EVERY_MS
    assert renewals(broker, committer, [middle_ms]) == [middle_ms]
    assert renewals(broker, committer, [VERIFY_EVERY_MS + COMMIT_AGAIN_MS]) == [
        VERIFY_EVERY_MS + COMMIT_AGAIN_MS
    ]


@pytest.mark.parametrize(
    ("error", "text"), [(LogError("group has members"), "group has members"), (Unreachable("gone"), "")]
)
def test_a_commit_that_fails_is_counted_and_made_again(error: WindhoverError, text: str) -> None:
    broker = Broker(error=error)
    committer = broker.committer()
    assert not committer.commit({A: position_at(0, 9)})
    assert (committer.failures, committer.refused, committer.committed()) == (1, text, {})
    broker.error = LogError("refused")
    committer.commit({A: position_at(0, 9)})
    broker.error = None
    assert committer.commit({A: position_at(0, 9)})
    assert (committer.failures, committer.refused, committer.committed()) == (2, "", {A: 9})


def test_a_look_that_fails_is_counted_and_changes_nothing() -> None:
    broker = Broker()
    committer = broker.committer()
    committer.step(lambda: {A: position_at(0, 9)}, 0, idle=True)
    broker.put(A, 2, "by hand")
    broker.error = Unreachable("gone")
    committer.step(dict, VERIFY_EVERY_MS, idle=True)
    assert (committer.failures, committer.committed(), committer.moved) == (1, {A: 9}, {})


def test_a_claim_replaces_what_no_spout_has_committed() -> None:
    """At the start, by what is settled; a source of which nothing is settled keeps what there is."""
    broker = Broker()
    broker.put(A, 5, "by hand")
    broker.put(B, 4)
    broker.put(C, 3, "by hand")
    committer = broker.committer()
    committer.replace_foreign_commits({A: position_at(2, 1), B: position_at(2, 9)})
    assert broker.take_sent() == [{A: 1}]
    assert committer.committed() == {A: 1, B: 4, C: 3}
    assert not committer.commit({A: position_at(2, 1)})
    assert committer.commit({A: position_at(3, 0)})


def test_commits_carry_the_leader_epochs_of_what_was_read() -> None:
    broker = Broker(epochs={PLACES[A]: 6, PLACES[C]: 2})
    broker.put(A, 5)
    committer = broker.committer()
    assert committer.read_to() == {A: ReadTo(5, 6)}
    committer.commit({A: position_at(0, 6)})
    committer.use_cursors({A: SourceCursor(0, 0, None, 7), B: SourceCursor(0, 0, None, NO_EPOCH)})
    committer.commit({A: position_at(0, 9), B: position_at(0, 1), C: position_at(0, 1)})
    assert [epochs for _, epochs in broker.sent] == [{}, {A: 7}]
    assert committer.read_to() == {A: ReadTo(5, 6)}
