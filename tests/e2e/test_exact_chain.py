"""Kafka to Kafka to Kafka, both queries exact, each killed at random within its commits."""

from __future__ import annotations

import signal
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from tests.support.bolts.exact_chain_job import TO_THE_END, UNTIL_KILLED, folder_of
from tests.support.brokers import Broker
from tests.support.programs import Program, running
from tests.support.waiting import committed, eventually
from tests.support.worlds.stream_worlds import config_of, produce_lines, serving
from tests.torture.exact.struck_store import Order

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.by_turns]

KILLS: Final = 3
"""Of each of the two queries."""

LINES: Final = 60
"""Written before each kill."""

DEATH_S_MAX: Final = 240.0

# whatever fails by chance, and however often a driver dies, nothing becomes a dead letter
INPUTS: Final = [
    f'  {name}: {{{{id: {number}, topic: "{{prefix}}{name}", group: "{{prefix}}{name}", partitions: 2,'
    " timeout: 60s, retry: {{attempts: 50, initial: 100ms, multiplier: 1, max_abandoned: 100}},"
    " dead_letter: {{max_ratio: 1}}}}"
    for number, name in enumerate(("lines", "words", "capitals"), start=95)
]


@pytest.mark.timeout(2_400)
def test_two_queries_in_a_row_that_are_killed_at_random_give_what_one_calm_run_gives(
    broker: Broker, tmp_path: Path
) -> None:
    """D3252: both live at once; now the one is killed within a commit, now the other."""
    config = config_of(tmp_path, broker, [], *INPUTS)
    topics = load_topics(config, {})
    topic_of = {name: topics.input(name).topic for name in ("lines", "words", "capitals")}
    targets = {"lines": topic_of["words"], "words": topic_of["capitals"]}
    log = KafkaLog(topics.kafka)
    expected: list[str] = []

    def produce() -> None:
        first = len(expected)
        lines = [f"a{number} b{number}" for number in range(first, first + LINES)]
        expected.extend(word.upper() for line in lines for word in line.split())
        produce_lines(log, topic_of["lines"], lines)

    with closing(log), serving(config, "acker", "replay"), ExitStack() as stack:

        def start(source: str, run: str, number: int) -> Program:
            arguments = (config, tmp_path, source, targets[source], run)
            program = ("-m", "tests.support.bolts.exact_chain_job", *arguments)
            return stack.enter_context(running(program, tmp_path / f"{source}-{number}.log"))

        jobs = {source: start(source, UNTIL_KILLED, 0) for source in targets}
        for number in range(1, KILLS + 1):
            for source in targets:
                produce()
                eventually(folder_of(tmp_path, source).exists)
                Order(folder_of(tmp_path, source)).give(signal.SIGKILL)
                eventually(lambda source=source: jobs[source].exit_code is not None, DEATH_S_MAX)
                assert jobs[source].exit_code == -signal.SIGKILL, jobs[source].said[-4_000:]
                jobs[source] = start(source, UNTIL_KILLED, number)
        for source in targets:
            jobs[source].send(signal.SIGKILL)
            jobs[source].ended()
            last = start(source, TO_THE_END, KILLS + 1)
            assert last.ended() == 0, last.said[-4_000:]
        places = [TopicPartition(topic_of["capitals"], part) for part in range(2)]
        capitals = [(record.value or b"").decode() for record in committed(log, places)]
    assert sorted(capitals) == sorted(expected)
