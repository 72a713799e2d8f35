"""What fails while it is opened leaves no reader open: the page opens it again every second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest

from acker.kafka.port import Log, TopicPartition
from acker.kafka.read_to_end import Follower
from replay.handling.outcomes import RedriveOutcomes
from spout.demo.observer import OutcomeObserver
from spout.group.presence import Presence
from spout.inspect.failures import FailureLog
from spout.planning_process.verdict_reader import VerdictReader
from tests.support.worlds.planning import World
from tests.support.worlds.replay_world import Crash, CrashAt

WORLD = World()
TOPICS = WORLD.topics
INPUT = TOPICS.input("sentences")
ACK, N = TOPICS.ack_topics, TOPICS.acker.partitions
QUESTIONS_MAX = 50


class Opened(Protocol):
    """Something that is closed."""

    def close(self) -> None:
        """Close its readers."""


@pytest.mark.parametrize(
    "make",
    [
        lambda log: Follower(log, [TopicPartition(ACK.verdict, 0)]),
        lambda log: FailureLog(log, TOPICS, [INPUT], 1),
        lambda log: RedriveOutcomes(log, TOPICS, INPUT, []),
        lambda log: Presence(log, ACK.init, N, "g", 1),
        lambda log: VerdictReader(log, ACK, N, lambda _event, _fields: None),
        lambda log: OutcomeObserver(log, TOPICS, INPUT),
    ],
    ids=["follower", "failures", "outcomes", "presence", "verdicts", "observer"],
)
def test_whatever_question_fails_no_reader_stays_open(make: Callable[[Log], Opened]) -> None:
    for number in range(QUESTIONS_MAX):
        log = WORLD.cluster.log(CrashAt(number))
        try:
            opened = make(log)
        except Crash:
            assert not log.open_readers, f"question {number}"
        else:
            break
    assert 0 < number < QUESTIONS_MAX - 1
    assert log.open_readers
    opened.close()
    assert not log.open_readers
