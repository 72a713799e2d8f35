"""A failover: topics, checkpoints and commits that come from another cluster.

The cluster of these tests gets another id while nothing runs, and all else stays as it is. So these are the
mirrored topics that are hardest to tell: with the same offsets, and the same ids of topics.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import datetime

import pytest

from acker.errors import Disagreement
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.provisioning.topic_times import longest_need_ms
from acker.service.view import ViewReader
from acker.wire.clusters import CLUSTER, UNKNOWN_CLUSTER
from replay.handling.dropping import Dropping
from replay.handling.resume import pauses, resume
from spout.group.due import DueEntries, DueWatch
from spout.group.starting import COMMITTED_BY
from spout.planning.journal import BEGINNING, journal_of
from tests.support.worlds.planning import WALL_MS, World, batch, emit_ten, yaml_of

FORMER, HERE = "memory", "elsewhere"
WAITS = yaml_of(timeout="4s", retry="{initial: 10m, max: 10m, attempts: 3, jitter: 0}")
PLACE = TopicPartition("sentences", 0)
LAST_MS = WALL_MS + 600_000
"""When the last of ten records was written that are a minute apart."""


def one_that_waits(*, names_cluster: bool = True) -> World:
    """Let ten records be read, of which one fails and waits in `_ack_due`; then everything ends.

    Where the brokers say no id, no record names its cluster, as in a former version.
    """
    world = World(WAITS)
    if not names_cluster:
        world.cluster.cluster_id = UNKNOWN_CLUSTER
    world.start_replays()
    planner, _ = emit_ten(world, fail=(4,), then_ms=4_000)
    assert world.committed() == 10
    world.stop_replays()
    world.kill_acker()
    world.kill(planner)
    world.cluster.now_ms += 60_000
    return world


def fail_over(world: World) -> None:
    """Let it be another cluster from now on."""
    world.cluster.cluster_id = HERE


def places_of(world: World, topic: str) -> list[TopicPartition]:
    """Return the partitions of an ack topic."""
    return [TopicPartition(topic, number) for number in range(world.topics.acker.partitions)]


def records_of(world: World, topic: str) -> list[Record]:
    """Return the committed records of a topic's partitions."""
    with closing(world.log.reader(committed=True)) as reader:
        reader.assign(world.log.starts(places_of(world, topic)))
        return list(reader.poll(0, 10_000))


def run_acker(world: World) -> None:
    """Let an acker restore its partitions."""
    world.start_acker()
    world.run(1_000)


def run_replays(world: World) -> None:
    """Let a replay worker take over its partitions."""
    world.start_replays()
    world.run(1_000)


def watch_due(world: World) -> None:
    """Do as a query does that ends when nothing waits."""
    topics, sources = world.topics, frozenset({1 << 16})
    due = DueWatch(world.log, topics.ack_topics.due, topics.acker.partitions, "g", sources)
    with closing(due) as watch:
        watch.read()


def follow_due(world: World) -> None:
    """Do as a query does that reads in order."""
    with closing(
        DueEntries(world.log, world.topics.ack_topics.due, world.topics.acker.partitions, [1])
    ) as entries:
        entries.read()


def view_state(world: World) -> None:
    """Do as `windhover status` does."""
    reader = ViewReader(
        world.log, world.topics.ack_topics, world.topics.acker.partitions, world.topics.acker.limits
    )
    for number in range(world.topics.acker.partitions):
        reader.view(number)


READERS: list[tuple[str, Callable[[World], object]]] = [
    ("_ack_state", run_acker),
    ("_ack_state", view_state),
    ("_ack_due", run_replays),
    ("_ack_due", watch_due),
    ("_ack_due", follow_due),
    ("_ack_due", lambda world: pauses(world.log, world.topics)),
    ("_ack_due", lambda world: resume(world.log, world.topics, 1)),
    ("_ack_due", lambda world: Dropping(world.log, world.topics, 1).find()),
]


@pytest.mark.parametrize(("topic", "read"), READERS)
def test_mirrored_ack_topics_are_refused_by_name(topic: str, read: Callable[[World], object]) -> None:
    """D2301: also where their offsets and topic ids fit, and whoever reads them."""
    world = one_that_waits()
    fail_over(world)
    with pytest.raises(Disagreement, match=rf"{topic}/\d+@\d+ is not of this cluster: .*{FORMER}.*{HERE}"):
        read(world)


@pytest.mark.parametrize(("topic", "read"), READERS)
def test_ack_topics_of_a_former_version_go_on(topic: str, read: Callable[[World], object]) -> None:
    """D2302: no record names a cluster, so they are taken as this one's."""
    world = one_that_waits(names_cluster=False)
    fail_over(world)
    read(world)
    assert records_of(world, topic)


def test_each_record_of_state_and_of_what_waits_names_its_cluster() -> None:
    """D2301: what is mirrored is no longer whole, so each of them says it."""
    world = one_that_waits()
    waiting = [record for record in records_of(world, "_ack_due") if record.value is not None]
    states = records_of(world, "_ack_state")
    inits = records_of(world, "_ack_init")
    assert len(waiting) >= 2  # an entry and a progress
    for record in [*waiting, *inits]:
        assert dict(record.headers)[CLUSTER] == FORMER.encode()
    assert any(CLUSTER in dict(record.headers) for record in states)


def test_takes_and_inits_of_another_cluster_are_quarantined() -> None:
    """D2303: `_ack_init` alone was mirrored. Nobody owns a group by a take that was made elsewhere."""
    former = one_that_waits()
    world = World(WAITS)
    fail_over(world)
    producer = world.log.producer()
    mirrored = records_of(former, "_ack_init")
    for record in mirrored:
        producer.send(Outgoing("_ack_init", record.partition, record.value, None, record.headers))
    producer.flush(0)
    world.kill_acker()
    world.run(1_000)
    run_acker(world)
    assert len(records_of(world, "_ack_quarantine")) == len(mirrored)
    assert world.acker is not None
    assert world.acker.status().open_roots == 0


def restart_acker(world: World) -> None:
    """Let another acker restore what the one before wrote."""
    world.kill_acker()
    world.run(1_000)
    run_acker(world)


def go_on(world: World) -> None:
    """Let a query read what comes in."""
    world.run(1_000)


@pytest.mark.parametrize("read", [restart_acker, run_replays, go_on])
def test_verdicts_that_are_mirrored_on_while_all_runs_settle_nothing(read: Callable[[World], None]) -> None:
    """D2307: the same source and position is another record here, which would count as done."""
    former = one_that_waits()
    world = World(WAITS)
    fail_over(world)
    emit_ten(world, skip=(2, 3, 4))
    mirrored = [record for record in records_of(former, "_ack_verdict") if record.value is not None]
    assert mirrored
    producer = world.log.producer()
    for record in mirrored:
        producer.send(Outgoing("_ack_verdict", record.partition, record.value, None, record.headers))
    producer.flush(0)
    with pytest.raises(
        Disagreement, match=rf"_ack_verdict/\d+@\d+ is not of this cluster: .*{FORMER}.*{HERE}"
    ):
        read(world)


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("take_over", [True, False])
@pytest.mark.parametrize("runs_again", [True, False])
def test_a_checkpoint_of_another_cluster_is_refused(tracked: bool, take_over: bool, runs_again: bool) -> None:
    """D2304: its offsets are those of other records, whatever the query may take over."""
    world = World()
    world.produce(10)
    planner = world.ready(tracked=tracked)
    end = journal_of(batch(planner, BEGINNING, world).to_json())
    world.kill(planner)
    fail_over(world)
    again = world.make(tracked=tracked, take_over=take_over)
    with pytest.raises(Disagreement, match=rf"checkpoint is of cluster {FORMER}, and this is cluster {HERE}"):
        again.open(end, world.now_ms, runs_again=runs_again)


def test_a_checkpoint_of_a_former_version_goes_on() -> None:
    """D2302: it names no cluster."""
    world = World()
    world.cluster.cluster_id = UNKNOWN_CLUSTER
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    assert "cluster" not in end.to_json()
    world.kill(planner)
    restart_acker(world)
    fail_over(world)
    assert world.ready(journal_of(end.to_json())).is_ready


def begin_elsewhere(text: str = WAITS, committed: int = 10, mark: str = COMMITTED_BY) -> World:
    """Return a cluster with ten records a minute apart, and a commit that was carried over; nothing more."""
    world = World(text)
    for _ in range(10):
        world.cluster.now_ms += 60_000
        world.produce(1)
    world.log.commit("g", {PLACE: committed}, mark)
    return world


@pytest.mark.parametrize("mark", [COMMITTED_BY, "", "reset by hand"])
def test_a_commit_without_state_is_named_with_what_nobody_knows_and_where_to_begin(mark: str) -> None:
    """D2305: three attempts of 4 s and two waits of 10 min, and a takeover: so far back a record may wait."""
    world = begin_elsewhere(mark=mark)
    world.ready()
    assert world.told.count("commit_without_state") == 1
    (advice,) = [str(text) for text in world.advice if "offsets reset" in str(text)]
    assert "windhover offsets reset sentences --to 2027-01-15T07:" in advice


def test_who_begins_where_it_says_leaves_nothing_out() -> None:
    """D2305: what waited in the former cluster is emitted again."""
    world = begin_elsewhere()
    begin_ms = carried_to(world)
    need_ms = longest_need_ms(world.topics.input("sentences"))
    assert need_ms is not None
    assert 0 <= LAST_MS - need_ms - begin_ms < 1_000
    world.rewind(world.log.offsets_at([PLACE], begin_ms)[PLACE])
    planner = world.ready()
    assert sum(run.end - run.start for run in batch(planner, BEGINNING, world).ranges) == 10


def carried_to(world: World) -> int:
    """Return the wall time (ms) that the line of a start names."""
    planner = world.ready()
    world.kill(planner)
    world.cluster.now_ms += 60_000
    (advice,) = [str(text) for text in world.advice if "offsets reset" in str(text)]
    return int(datetime.fromisoformat(advice.split("--to ")[1].split(" ")[0]).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "committed", "start"),
    [(WAITS, 0, None), (WAITS, 10, "earliest"), (WAITS, 10, "latest"), (WAITS, 10, 5)],
)
def test_a_group_that_does_not_begin_at_a_commit_gets_no_such_line(
    text: str, committed: int, start: str | int | None
) -> None:
    """D2305: below offset 0 nothing can have failed."""
    world = begin_elsewhere(text, committed)
    world.ready(start=start)
    assert "commit_without_state" not in world.told


def test_a_group_whose_state_is_there_gets_no_such_line() -> None:
    """D2305: a second process with a checkpoint of its own, and a restart."""
    world = one_that_waits()
    world.start_acker()
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.kill(planner)
    world.ready(end)
    assert "commit_without_state" not in world.told


def test_an_input_without_a_timeout_begins_at_the_earliest_record() -> None:
    """D2305: there is no end to how long it may need a record."""
    world = begin_elsewhere(yaml_of(timeout="0"))
    world.ready()
    assert any("--to earliest" in str(text) for text in world.advice)
