"""One root stays open for an hour while ten million pass: memory, State and restart stay as they were.

The hour is that of the session's clock, told every three seconds, and each step commits. `refold_bytes` is
lowered to 1 MiB: with its default of 128 MiB the range is carried by the same code, after 32,768 records.
"""

from __future__ import annotations

import copy

import pytest

from acker.config.limits import AckerLimits
from acker.config.topics import parse
from acker.kafka.port import TopicPartition
from acker.ledger.output import AckerEventKind
from acker.root_sets.root_set import RootSet
from acker.service.bins import REWRITE_STEPS
from acker.service.state import BIN_PART, StatePart, part_key, state_codec, unpack_state
from acker.wire.events import Verdicts
from spout.inspect.operate import GroupSession
from tests.support.worlds.acker_world import GROUP, SOURCE, TOPIC, TOPICS, World, Writer, edge

HOUR_MS = 3_600_000
STEPS = 1_200
PASSING = 10_000_000
STRAGGLER = 7
REFOLD_BYTES = 1 << 20
LIMITS = AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, refold_bytes=REFOLD_BYTES, retention_interval_ms=100)


def begin() -> tuple[World, Writer]:
    """Return an acker, and a session that has taken its group, on a topic that exists."""
    world = World(limits=LIMITS)
    for name in (TOPIC, f"{TOPIC}.{GROUP}.replay", f"{TOPIC}.{GROUP}.dlq"):
        world.cluster.create_topic(name, 4)
    writer = world.session()
    writer.take(topic_id=world.writer_log.topics([TOPIC])[TOPIC].id)
    world.settle()
    return world, writer


def an_hour(world: World, writer: Writer) -> None:
    """Let ten million roots pass, in batches; each is acked in the step after the one that opened it."""
    size = PASSING // STEPS
    for step in range(STEPS):
        start = 1_000 + step * size
        writer.init((start, start + size), now=step * HOUR_MS // STEPS)
        world.step()
        for (_, block), runs in RootSet.of_runs([(SOURCE, start, start + size)]).runs_by_block().items():
            writer.acks(runs=runs, seq=1 + step, block=block)
        writer.tick(step * HOUR_MS // STEPS)
        world.step()


@pytest.fixture(scope="module")
def without() -> World:
    """The hour without a straggler."""
    world, writer = begin()
    an_hour(world, writer)
    return world


@pytest.fixture(scope="module")
def hour() -> tuple[World, Writer]:
    """The hour with a straggler, which got one contribution at its beginning."""
    world, writer = begin()
    writer.init((STRAGGLER, STRAGGLER + 1), timeout_ms=2 * HOUR_MS)
    writer.acks(values=[(STRAGGLER, 5)], seq=0)
    an_hour(world, writer)
    assert world.status().open_roots == 1
    return world, writer


@pytest.fixture
def straggler(hour: tuple[World, Writer]) -> tuple[World, Writer]:
    """The hour with a straggler, for a test that goes on from there."""
    return copy.deepcopy(hour)


def read_by_a_restart(world: World) -> tuple[int, int, int]:
    """Return the records of ``_ack_ack`` that a restart folds again, bytes of State, and its records."""
    last = {record.key: record.value for record in world.read(TOPICS.state)}
    decoded = [state_codec().decode(value) for value in last.values() if value is not None]
    parts = {part.part: part for part in decoded if isinstance(part, StatePart)}
    state = unpack_state(state_codec(), parts)
    assert state is not None
    return state.ack - state.safe, sum(len(part.body) for part in parts.values()), len(parts)


def test_a_straggler_pins_no_log_and_costs_a_restart_next_to_nothing(
    hour: tuple[World, Writer], without: World
) -> None:
    """5.3: it is carried by value, so the safe position passes it, and what is below is deleted."""
    world, _ = hour
    assert world.status().counts.carried == 1
    assert [event.kind for event in world.events].count(AckerEventKind.CARRIED) == 1
    (folded, size, records), (folded_without, size_without, _) = map(read_by_a_restart, (world, without))
    assert (folded, folded_without) == (0, 0)
    assert size < size_without + 300
    assert records == 2
    written = [record.key for record in world.read(TOPICS.state)]
    assert written[::-1].index(part_key(0, BIN_PART)) <= REWRITE_STEPS + 1
    for topic in (TOPICS.ack, TOPICS.init):
        starts = [
            each.writer_log.starts([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
            for each in (world, without)
        ]
        assert abs(starts[0] - starts[1]) <= 2
        assert starts[1] > STEPS / 2


def test_a_straggler_leaves_nothing_of_the_ten_million_in_memory(
    hour: tuple[World, Writer], without: World
) -> None:
    """One range, one value; no marks, pins or deadlines of what has passed."""
    (core, other) = (each.acker._owned_ackers[0].core for each in (hour[0], without))
    assert [cohort.roots.bytes for cohort in core.ledger.cohorts()] == [8]
    kept, kept_without = (
        [
            len(each.ack_marks._records_not_in_safe),
            len(each.ledger._ack_pinned),
            len(each.ledger._verdict_pinned),
            sum(len(book.deadlines) for book in each.ledger._open_cohorts._cohorts_by_session.values()),
        ]
        for each in (core, other)
    )
    assert kept[:3] == kept_without[:3] == [0, 0, 0]
    assert kept[3] < 2_000


def test_a_straggler_completes_after_a_kill_an_hour_later(straggler: tuple[World, Writer]) -> None:
    """What it had at the beginning of the hour still counts, once."""
    world, writer = straggler
    world.crash()
    world.settle()
    assert world.status().open_roots == 1
    writer.acks(values=[(STRAGGLER, 5 ^ edge(STRAGGLER))], seq=STEPS + 9)
    world.settle()
    assert world.status().open_roots == 0
    assert last_verdicts(world).acked == ((SOURCE, STRAGGLER, STRAGGLER + 1),)


def test_a_straggler_times_out_at_its_own_deadline(straggler: tuple[World, Writer]) -> None:
    """Rule 8: after two hours of its session's clock, not before, whoever restarted meanwhile."""
    world, writer = straggler
    world.crash()
    writer.tick(2 * HOUR_MS - 1)
    world.settle()
    assert world.status().open_roots == 1
    writer.tick(2 * HOUR_MS)
    world.settle()
    assert [lost.reason for lost in last_verdicts(world).lost] == ["TIMED_OUT"]


def test_a_release_puts_a_straggler_back(straggler: tuple[World, Writer]) -> None:
    """`windhover release`: a takeover without a successor, after which nothing is open or carried."""
    world, _ = straggler
    text = f"acker: {{partitions: 1}}\ninputs: {{{TOPIC}: {{id: 1, group: {GROUP}}}}}"
    topics = parse(text, file="topics.yaml", environ={})
    operation = GroupSession(world.cluster.log(), topics, GROUP, new_id="op-release")
    while not operation.step(world.now_ms):
        world.step()
    operation.finish()
    assert [(lost.reason, len(lost.positions)) for lost in last_verdicts(world).lost] == [("ABANDONED", 8)]
    assert (world.status().open_roots, world.status().counts.abandoned) == (0, 1)
    world.crash()
    world.settle()
    assert (world.status().open_roots, read_by_a_restart(world)[2]) == (0, 1)


def last_verdicts(world: World) -> Verdicts:
    """Return the last record of the verdict topic that settles anything."""
    return next(event for event in reversed(world.answers()) if isinstance(event, Verdicts))
