"""Records of anybody in the ack topics: no acker, spout or replay worker is stopped, and nothing is lost.

Every record decodes; many are wrong in what they say. Those that claim to be of the session under test are
left out: who may write and speaks in another's name is believed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import get_type_hints

from hypothesis import given, settings
from hypothesis import strategies as st

from acker.errors import CodecError, DataLoss, Disagreement, OutOfRange
from acker.identity import position_at, source_of
from acker.kafka.port import Outgoing
from acker.service.state import (
    State,
    StatePart,
    StoredRange,
    pack_ranges,
    part_key,
    parts_of,
    state_codec,
    unpack_state,
)
from acker.wire.events import Acks, Fails, Init, Take, Taken, Tick, Verdicts
from replay.records.due import Due, Progress, due_codec
from tests.support.forged import FORGERIES, Plot
from tests.support.garbage import LONGS, SPLICES, golden_records, mutated, values
from tests.support.memory.cluster import MemoryCluster
from tests.support.worlds import planning, replay_world
from tests.support.worlds.acker_world import CODEC, SOURCE, TOPIC, TOPICS, World

NOW_MS = 1_800_000_000_000
PLOT_GROUP = "_ack_init-g0"
"""The group of the first session that a `Plot` lets begin."""

SOURCES = st.sampled_from(
    [SOURCE, source_of(1, 7), source_of(2, 0, replay=True), 0, -1, 16_384 << 16, 1 << 31, -(1 << 40)]
)
POSITIONS = st.integers(0, 40) | st.sampled_from(
    [1 << 15, 1 << 16, int(position_at(1, 5)), -1, (1 << 63) - 1, -(1 << 63)]
)
KNOWN = {
    "group": st.sampled_from(["elsewhere", "nowhere"]),
    "session": st.sampled_from(["s1", "s9"]),
    "epoch": st.sampled_from([1, 0, 2, -1, (1 << 63) - 1]),
    "source": SOURCES,
    "generation": st.sampled_from([0, 1, -1, 1 << 15, 1 << 40]),
    "partitions": st.sampled_from([1, 1, 1, 0, 3]),
    "topic": st.just("other"),
    "start": POSITIONS,
    "end": POSITIONS,
    "from_": POSITIONS,
    "position": POSITIONS,
    "block": st.sampled_from([0, 0, 0, 1, 1 << 33, 1 << 60, -1]),
    "lane": st.sampled_from(["query/s1", "b"]),
}
KNOWN_HEADERS = frozenset(map(CODEC.header, (Take, Taken, Init, Tick, Acks, Fails, Verdicts)))
SEEDS = tuple(golden_records().values())
ANYTHING = mutated(SEEDS) | st.sampled_from(SPLICES)
WRITTEN = st.tuples(
    st.sampled_from([TOPICS.init, TOPICS.ack, TOPICS.fail]),
    st.one_of([values(kind, KNOWN) for kind in (Take, Init, Tick, Acks, Fails)]).map(CODEC.encode) | ANYTHING,
)
AT_HOME = (
    st.tuples(
        st.just(TOPICS.init),
        st.one_of([values(kind, KNOWN) for kind in (Take, Init, Tick)]).map(CODEC.encode),
    )
    | st.tuples(st.just(TOPICS.ack), values(Acks, KNOWN).map(CODEC.encode))
    | st.tuples(st.just(TOPICS.fail), values(Fails, KNOWN).map(CODEC.encode))
)


@settings(max_examples=120, deadline=None)
@given(written=st.lists(AT_HOME | WRITTEN, min_size=1, max_size=8))
def test_no_record_stops_an_acker(written: list[tuple[str, bytes]]) -> None:
    """Written between a session's emission and its acks, and read again by the acker that comes next."""
    world = World()
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    world.settle()
    for topic, value in written:
        world.write_raw(topic, value)
        world.settle()
    world.crash()
    world.settle()
    writer.acks(runs=[(0, 10)], seq=1)
    world.settle()
    assert {position: world.of()[position] for position in range(10)} == dict.fromkeys(range(10), "ACKED")


FORGED = KNOWN | {
    "group": st.sampled_from([PLOT_GROUP, PLOT_GROUP, PLOT_GROUP, "elsewhere"]),
    "session": st.sampled_from(["s1", "s1", "s0", "x"]),
    "epoch": st.sampled_from([1, 1, 0, 2, 1_000, (1 << 53) - 1, 1 << 53, 1 << 60]) | LONGS,
    "now": st.sampled_from([0, NOW_MS, NOW_MS + 3_600_000, NOW_MS + 10_000_000, 1 << 53]) | LONGS,
    "source": st.sampled_from([source_of(1, 0), source_of(1, 1), source_of(1, 0, replay=True)]) | SOURCES,
    "generation": st.sampled_from([0, 1, 2, 17, 18, 1_024, 1_025, (1 << 15) - 1]) | LONGS,
    "topic": st.sampled_from(["lines", "lines", "other"]),
    "lane": st.sampled_from(["query/s1", "query/s2", "b"]),
}
"""In the name of the session under test, or of another one of its group, with numbers at all edges."""


@settings(max_examples=150, deadline=None)
@given(
    written=st.lists(
        st.tuples(st.just("init"), st.one_of([values(kind, FORGED) for kind in (Take, Take, Init, Tick)]))
        | st.tuples(st.just("ack"), values(Acks, FORGED))
        | st.tuples(st.just("fail"), values(Fails, FORGED)),
        min_size=1,
        max_size=6,
    )
)
def test_whatever_is_written_in_a_sessions_name_a_new_session_of_its_group_has_all_again(
    written: list[tuple[str, Take | Init | Tick | Acks | Fails]],
) -> None:
    """O1801: it asks, draws, takes, rewinds; its roots are acked, and time out."""
    world = World(cluster=MemoryCluster(NOW_MS), now_ms=NOW_MS)
    plot = Plot(world.writer_log, TOPICS, world.settle, lambda: NOW_MS, FORGERIES[:1])
    for topic, event in written:
        plot.write(topic, event)
    world.crash()
    world.settle()
    [successor] = plot.succeed()
    assert plot.outcomes(successor) == {0: "ACKED", 1: "TIMED_OUT"}


@settings(max_examples=40, deadline=None)
@given(written=st.lists(values(Verdicts, KNOWN | {"topic": st.just(TOPIC)}), max_size=4))
def test_no_verdict_stops_a_restart_of_an_acker(written: list[Verdicts]) -> None:
    """Nobody but an acker writes there; what is none of its records is passed over."""
    world = World()
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    writer.acks(runs=[(0, 5)])
    world.settle()
    for verdicts in written:
        others = verdicts.__class__((), (), tuple(lost for lost in verdicts.lost if lost.source != SOURCE))
        world.write(TOPICS.verdict, others)
    world.crash()
    world.settle()
    writer.acks(runs=[(5, 10)], seq=1)
    world.settle()
    assert world.status().open_roots == 0


@settings(max_examples=60, deadline=None)
@given(
    written=st.lists(
        values(Verdicts, KNOWN | {"group": st.just("g"), "topic": st.just("sentences")}), max_size=4
    ),
    waiting=st.lists(values(Due, KNOWN | {"group": st.just("g")}) | values(Progress), max_size=4),
    key=st.sampled_from([b"other", b"\x00" * 12]),
)
def test_no_verdict_and_nothing_that_waits_stops_a_replay_worker(
    written: list[Verdicts], waiting: list[Due | Progress], key: bytes
) -> None:
    """But for a root of an input that topics.yaml does not have: that one stops it by name, and waits."""
    world = replay_world.World()
    for value in waiting:
        world.send_due(key, due_codec().encode(value))
    worker = world.worker()
    for verdicts in written:
        world.verdict(verdicts, 1)
    world.lose(world.emit(b"x"))
    try:
        world.settle(worker, until_ms=world.now_ms + 60_000)
    except Disagreement as error:
        stopped = str(error)
    else:
        stopped = ""
    assert "input id" in stopped or b"x" in [copy.value for copy in world.copies()]


@settings(max_examples=40, deadline=None)
@given(
    written=st.lists(
        st.one_of([values(kind, KNOWN | {"group": st.just("g")}) for kind in (Verdicts, Taken)]).map(
            CODEC.encode
        )
        | ANYTHING.filter(lambda data: not data.startswith(CODEC.header(Verdicts))),
        max_size=5,
    )
)
def test_no_record_stops_the_reader_of_verdicts_of_a_spout(written: list[bytes]) -> None:
    """A verdict about roots that it does not know changes nothing, and what is no verdict is counted."""
    world = planning.World()
    world.produce(10)
    planner = world.ready()
    producer = world.log.producer()
    for value in written:
        if value[:2] != b"\xc3\x01" or value[:10] in KNOWN_HEADERS:
            producer.send(Outgoing(world.topics.ack_topics.verdict, 0, value))
    producer.flush(0)
    world.run(300)
    assert planner.is_ready


SMALL = st.integers(-2, 3)
WITHIN = {
    "session": st.integers(-1, 2), "source": st.sampled_from([SOURCE, 0, -1, 1 << 40]),
    "epoch": SMALL, "now": SMALL, "before": SMALL, "timeout_ms": SMALL,
}  # fmt: skip
RANGES = st.lists(st.builds(StoredRange, *[SMALL] * len(StoredRange._fields)), max_size=3).map(pack_ranges)
HINTS = get_type_hints(State)


@settings(max_examples=80, deadline=None)
@given(name=st.sampled_from(sorted(HINTS)), data=st.data())
def test_a_state_that_contradicts_itself_or_the_logs_is_refused_by_name(
    name: str, data: st.DataObject
) -> None:
    """Nobody but an acker writes there; what cannot be loaded must not be guessed at."""
    world = World()
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    writer.acks(values=[(1, 5)])
    world.settle()
    codec = state_codec()
    part = codec.decode(world.read(TOPICS.state)[-1].value)
    state = unpack_state(codec, {0: part}) if isinstance(part, StatePart) else None
    assert state is not None
    wrong = data.draw(RANGES if name == "ranges" else values(HINTS[name], WITHIN))
    producer = world.writer_log.producer()
    with suppress(CodecError):  # a number that no State could hold
        for each in parts_of(codec, replace(state, **{name: wrong})):
            producer.send(Outgoing(TOPICS.state, 0, codec.encode(each), part_key(0, each.part)))
    producer.flush(0)
    world.crash()
    with suppress(Disagreement, DataLoss, OutOfRange):
        world.settle()
