"""A clock that is wrong is told from the signs of life in the topics, here and where they are written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest

from acker.kafka.port import Outgoing, TopicPartition
from acker.writer_clocks import CLOCK, UNKNOWN_TIME, WriterTime, clock_header, writer_time
from spout.group.clocks import WATCH_MS, YOUNG_MS, WatchedClocks, watch_clocks, wrong_clocks
from spout.group.presence import SIGN_EVERY_MS
from spout.inspect.overview import Overview, missing_processes, with_right_clock
from spout.ui.attention import Thresholds, problems
from tests.support.memory.cluster import MemoryCluster
from tests.support.worlds.planning import WALL_MS, WHO, YAML, World, emit_ten

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
KINDS = ("LogAppendTime", "CreateTime")


def world_of(kind: str) -> World:
    """Return a world whose own topics have the broker's time, or their writers'."""
    cluster = MemoryCluster(WALL_MS)
    plain = World()
    for name in plain.topics.ack_topics.names():
        settings = {"message.timestamp.type": kind}
        cluster.create_topic(name, plain.topics.acker.partitions, settings=settings)
    for found in plain.topics.inputs.values():
        for topic in (found.topic, found.replay_topic, found.dead_letter.topic):
            cluster.create_topic(topic, found.partitions or 1)
    return World(YAML, cluster)


def appended(ahead_ms: int, age_ms: int = 0) -> WriterTime:
    return WriterTime(NOW_MS - age_ms + ahead_ms, NOW_MS - age_ms)


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ([appended(2 * HOUR_MS)], "2.0 h ahead of the broker's"),
        ([appended(-2 * HOUR_MS)], "2.0 h behind the broker's"),
        ([appended(59_000)], ""),
        ([appended(-90_000), appended(-5)], ""),  # one record took long to its broker
        ([appended(2 * HOUR_MS, age_ms=YOUNG_MS + 1)], ""),  # it may be right by now
        ([WriterTime(NOW_MS + 2 * HOUR_MS)], "2.0 h ahead of this machine's"),  # CreateTime
        ([WriterTime(NOW_MS - 2 * HOUR_MS)], ""),  # CreateTime: it may be old
        ([WriterTime(None, NOW_MS)], ""),  # of a former version
        ([UNKNOWN_TIME], ""),
        ([], ""),
    ],
)
def test_a_writer_with_a_wrong_clock_is_named(times: Sequence[WriterTime], text: str) -> None:
    """D407, D409: with the difference and the cure; a topic with CreateTime shows less than one without."""
    found = wrong_clocks([("the acker of partition 3", times)], NOW_MS)
    assert bool(found) == bool(text)
    for whose, sentence in found.items():
        assert sentence.startswith(f"the clock of {whose} is {text}: set it right on that machine")


@pytest.mark.parametrize("value", [b"", b"x", b"-5", b"1e9", b"9" * 20, None, "\u0661".encode()])
def test_what_a_stranger_writes_as_a_clock_says_nothing(value: bytes | None) -> None:
    """D410."""
    cluster = MemoryCluster(NOW_MS)
    cluster.create_topic("t", 1, settings={"message.timestamp.type": "LogAppendTime"})
    producer = cluster.log().producer()
    producer.send(Outgoing("t", 0, b"", headers=((CLOCK, value),)))
    producer.send(Outgoing("t", 0, b"", headers=clock_header(NOW_MS + 5)))
    producer.flush(1_000)
    with closing(cluster.log().reader(committed=False)) as reader:
        reader.assign({TopicPartition("t", 0): 0})
        strange, ours = reader.poll(100, 10)
    assert writer_time(strange) == WriterTime(None, NOW_MS)
    assert writer_time(ours).ahead_ms == 5


def test_a_topic_with_create_time_has_its_writers_times() -> None:
    """D409: what its records say is the writer's time, whatever stands in a header."""
    cluster = MemoryCluster(NOW_MS)
    cluster.create_topic("t", 1)
    producer = cluster.log().producer()
    producer.send(Outgoing("t", 0, b"", headers=clock_header(NOW_MS), timestamp_ms=NOW_MS + HOUR_MS))
    producer.flush(1_000)
    with closing(cluster.log().reader(committed=False)) as reader:
        reader.assign({TopicPartition("t", 0): 0})
        [record] = reader.poll(100, 10)
    assert writer_time(record) == WriterTime(NOW_MS + HOUR_MS)


class SkewedClock:
    """This machine's clock, which is wrong; while somebody looks at it, the world goes on."""

    def __init__(self, world: World, ahead_ms: int) -> None:
        self.world = world
        self.ahead_ms = ahead_ms

    def __call__(self) -> int:
        self.world.run(SIGN_EVERY_MS // 4)
        return self.world.now_ms + self.ahead_ms


@pytest.mark.parametrize("ahead_ms", [0, 2 * HOUR_MS, -2 * HOUR_MS], ids=["right", "ahead", "behind"])
@pytest.mark.parametrize("kind", KINDS)
def test_who_watches_signs_of_life_learns_whose_clock_is_wrong(kind: str, ahead_ms: int) -> None:
    """D407, D409: by the broker's time this machine's clock; by the writers' time theirs."""
    world = world_of(kind)
    world.ready(who=WHO)
    signs = [TopicPartition("_ack_init", number) for number in range(world.topics.acker.partitions)]
    watched = watch_clocks(world.cluster.log(), signs, SkewedClock(world, ahead_ms))
    # what it differs by is found to the time for which somebody watched
    if kind == "LogAppendTime":
        assert watched.here_ahead_ms == pytest.approx(ahead_ms, abs=20 * WATCH_MS)
        assert watched.driver_ahead_ms is None
    else:
        assert watched.here_ahead_ms is None
        assert watched.driver_ahead_ms == pytest.approx(-ahead_ms, abs=20 * WATCH_MS)
    assert bool(watched.texts(world.now_ms)) == bool(ahead_ms)


def test_where_nobody_writes_nothing_is_said_of_clocks() -> None:
    """D407."""
    world = world_of("LogAppendTime")
    signs = [TopicPartition("_ack_init", 0)]
    assert watch_clocks(world.cluster.log(), signs, lambda: NOW_MS) == WatchedClocks()


@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, -2 * HOUR_MS], ids=["ahead", "behind"])
def test_a_view_by_a_wrong_clock_names_it_and_still_sees_the_query(ahead_ms: int) -> None:
    """D408: else it says that no query lives, and advises `windhover release`."""
    world = world_of("LogAppendTime")
    world.ready(who=WHO)
    world.run(2 * SIGN_EVERY_MS)
    clock = SkewedClock(world, ahead_ms)
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        wrong = overview.snapshot(clock())
        right = with_right_clock(overview, wrong, clock)
    names = [flag.name for flag in problems(right, world.topics, Thresholds())]
    assert "clock: this machine's" in names
    assert {state.query_lives.value for state in right.partitions} == {True}
    assert not [text for text in missing_processes(right.rows(), world.topics) if "no query" in text]
    assert "clock: this machine's" not in [
        flag.name for flag in problems(right, world.topics, Thresholds(clocks=False))
    ]


@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, -2 * HOUR_MS], ids=["ahead", "behind"])
def test_who_gives_signs_of_life_by_a_wrong_clock_is_named_by_every_view(ahead_ms: int) -> None:
    """D409: driver, acker and replay worker say in their records what their clocks say."""
    world = world_of("LogAppendTime")
    planner, _ = emit_ten(world, fail=[2])
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        assert overview.snapshot(world.now_ms).clocks == {}
    # from now on each of them has another time than the broker, which dates the records
    world.start_replays()
    acker, replays = world.acker, world.replays
    assert acker is not None
    assert replays is not None
    for _ in range(100):
        world.produce(1)
        wrong_ms = world.cluster.now_ms + ahead_ms
        planner.step(planner.poll(0), wrong_ms)
        acker.step(wrong_ms)
        replays.step(wrong_ms)
        world.cluster.now_ms += 100
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        snapshot = overview.snapshot(world.now_ms)
    kinds = {whose.partition(" of ")[0] for whose in snapshot.clocks}
    assert kinds == {"the driver", "the acker", "the replay worker"}
    assert all("2.0 h" in text and "the broker's" in text for text in snapshot.clocks.values())
