"""What a query that ends when all is done waits for, what it says meanwhile, and when it gives up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from acker.errors import ReplaysStand, Unreachable
from acker.identity import source_of
from acker.kafka.port import Outgoing
from replay.records.due import Aside, Due, Loss, RefusedRoot, due_codec, refused_entry, root_key
from spout.planning.journal import BEGINNING, Journal
from spout.planning_process.draining import ASIDE_SEEN_MS, PAUSE_SEEN_MS
from spout.planning_process.planner import Planner
from tests.support.garbage import DUE
from tests.support.worlds.planning import World, batch, yaml_of

LETTERS = "{max_ratio: 1.0, max_consecutive: 1}"
PAUSED = yaml_of(timeout="4s", retry="{attempts: 1}", dead_letter=LETTERS)
MINUTE_MS = 60_000


class Hearing(World):
    """A world that keeps what its planners report, with the fields."""

    def __init__(self, text: str) -> None:
        """Begin with nothing heard."""
        self.heard: list[tuple[str, dict[str, object]]] = []
        super().__init__(text)

    def _hear(self, event: str, fields: object) -> None:
        """Note it."""
        assert isinstance(fields, dict)
        self.heard.append((event, dict(fields)))

    def said(self, event: str) -> list[dict[str, object]]:
        """Return the fields of all reports of an event."""
        return [fields for name, fields in self.heard if name == event]


def drain(world: World, planner: Planner, ms: int, *, every_ms: int = 500) -> bool:
    """Let time pass; return whether the planner was drained at a look."""
    for _ in range(ms // every_ms):
        world.run(every_ms)
        if planner.is_drained():
            return True
    return False


def failed(world: World, count: int = 10, fail: int = 4) -> tuple[Planner, Journal]:
    """Emit records and let some fail; the planner ends when all is done."""
    world.produce(count)
    planner = world.ready(stops_at_ends=True)
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first, fail=list(range(fail)))
    return planner, first


@pytest.mark.parametrize("ordering", ["none", "partition", "key"])
def test_a_query_that_ends_names_the_pause_that_it_would_wait_for(ordering: str) -> None:
    """D902: the input, since when and why it is paused, and the command; it does not wait for ever."""
    world = Hearing(PAUSED + f"    ordering: {ordering}\n" * (ordering != "none"))
    world.start_replays()
    planner, _ = failed(world)
    with pytest.raises(ReplaysStand) as raised:
        drain(world, planner, 60_000)
    text = str(raised.value)
    assert "input sentences is paused since 2027-" in text
    assert "`windhover replay resume sentences`" in text
    assert "start the query again" in text
    assert raised.value.exit_code == 1


def test_a_pause_that_somebody_ends_in_time_is_no_error() -> None:
    """A moment ago it was resumed: then the copies come, and all is done."""
    world = Hearing(PAUSED)
    world.start_replays()
    planner, _ = failed(world)
    world.run(2_000)
    assert not planner.is_drained()
    world.run(PAUSE_SEEN_MS - 2_000)
    assert not planner.is_drained()


def test_what_will_come_by_itself_is_waited_for_before_a_pause_is_an_error() -> None:
    """A root of another input of the query is due in half a minute."""
    world = Hearing(PAUSED + "  words: {id: 2, group: g, partitions: 1, timeout: 4s}\n")
    world.start_replays()
    world.produce(10)
    planner = world.ready(stops_at_ends=True)
    first = batch(planner, BEGINNING, world)
    put(world, replace(due(world), source=source_of(2, 0), due_ms=world.now_ms + 30_000))
    world.stop_replays()  # what was written to `_ack_due` behind its back it does not know
    world.start_replays()
    world.publish(BEGINNING, first, fail=[0, 1, 2])
    assert not drain(world, planner, 25_000)
    line = world.said("waits_for_replays")[-1]
    assert (line["paused_sentences"], line["next_step"]) == (
        2,
        "correct what fails, then run `windhover replay resume sentences`",
    )


def put(world: World, value: Due) -> None:
    """Write an entry to `_ack_due`, as a replay worker does."""
    producer = world.log.producer()
    producer.send(Outgoing(world.topics.ack_topics.due, 0, due_codec().encode(value), root_key(value)))
    producer.flush(0)


def due(world: World, *, group: str = "g") -> Due:
    """Return a lost root of the input that is due now."""
    return Due(
        source=source_of(1, 0), position=7, due_ms=world.now_ms, dead="", group=group, topic="sentences",
        topic_id="t", origin="sentences/0@7", attempt=1, abandoned=0, first_emitted_ms=1, history=DUE.history,
    )  # fmt: skip


def aside(of: Due) -> Due:
    """Return it as put aside, undecided."""
    values = {name: getattr(of, name) for name in Due.__dataclass_fields__}
    history = of.history or (Loss(1, DUE.history[0].reason, "", "", "", 1, 1, "sentences/0@7"),)
    return Aside(**{**values, "history": history})


def refused(of: Due) -> RefusedRoot:
    """Return it as refused by its topic."""
    return refused_entry(of, of.due_ms, copy_why="MSG_SIZE_TOO_LARGE")


@pytest.mark.parametrize(("kind", "why"), [(aside, "could not go on"), (refused, "MSG_SIZE_TOO_LARGE")])
def test_a_query_that_ends_names_what_was_put_aside(kind: Callable[[Due], Due], why: str) -> None:
    """D903: a replay worker tried it twice, and it waits for somebody."""
    world = Hearing(yaml_of(timeout="4s"))
    planner = world.ready(stops_at_ends=True)
    put(world, kind(due(world)))
    assert not drain(world, planner, ASIDE_SEEN_MS - 1_000)
    with pytest.raises(ReplaysStand, match=rf"1 lost roots of input sentences are put aside.*{why}"):
        drain(world, planner, 5_000)


def test_a_query_that_ends_waits_for_no_root_of_another_group_under_its_id() -> None:
    """They wait until the input has that group again, and are none of this one's."""
    world = Hearing(yaml_of(timeout="4s"))
    planner = world.ready(stops_at_ends=True)
    put(world, due(world, group="former"))
    assert drain(world, planner, 1_000)


def test_a_wait_for_replays_is_said_each_minute_and_ends_without_a_replay_worker() -> None:
    """D904: at first it says what is due when; after as long as a broker may be away it is an error."""
    world = Hearing(yaml_of(timeout="4s"))
    planner, _ = failed(world)
    world.run(1_000)
    assert not drain(world, planner, 3 * MINUTE_MS)
    lines = world.said("waits_for_replays")
    assert [line["waited_s"] for line in lines] == [0, 60, 120]
    assert lines[1]["not_taken_over"]
    assert "start one with `windhover replay run`" in str(lines[1]["next_step"])
    with pytest.raises(Unreachable, match=r"lost roots of group g wait.*`windhover replay run`"):
        drain(world, planner, 3 * MINUTE_MS)


def test_a_replay_that_is_due_in_ten_minutes_is_waited_for() -> None:
    """Nobody is away: a replay worker has it, and the line says until when."""
    retry = "{initial: 10m, max: 10m, jitter: 0.0}"
    world = Hearing(yaml_of(timeout="4s", retry=retry))
    world.start_replays()
    planner, first = failed(world, fail=1)
    assert not drain(world, planner, 9 * MINUTE_MS, every_ms=5_000)
    line = world.said("waits_for_replays")[-1]
    assert (line["roots"], str(line["next_due"])[:5]) == (1, "2027-")
    assert str(line["next_step"]).startswith("a replay worker replays them when they are due")
    world.run(2 * MINUTE_MS)
    second = batch(planner, first, world)
    assert second is not first


def test_a_wait_for_verdicts_is_said_each_minute_and_ends_without_an_acker() -> None:
    """D905: which roots, how old, of which acker partitions; a root has its verdict within its timeout."""
    world = Hearing(yaml_of(timeout="4s"))
    world.produce(10)
    planner = world.ready(stops_at_ends=True)
    batch(planner, BEGINNING, world)
    world.acker = None
    assert not drain(world, planner, 3 * MINUTE_MS)
    lines = world.said("waits_for_verdicts")
    assert [(line["waited_s"], line["roots"]) for line in lines] == [(60, 10), (120, 10)]
    assert lines[0]["acker_partitions"]
    assert "`windhover acker run`" in str(lines[0]["next_step"])
    with pytest.raises(Unreachable, match=r"10 roots of group g have had no verdict.*`windhover acker run`"):
        drain(world, planner, 3 * MINUTE_MS)


def test_without_a_timeout_a_verdict_is_waited_for_without_end() -> None:
    """Some work takes a day; the line is said all the same."""
    world = Hearing(yaml_of(timeout="0s"))
    world.produce(10)
    planner = world.ready(stops_at_ends=True)
    batch(planner, BEGINNING, world)
    world.acker = None
    assert not drain(world, planner, 15 * MINUTE_MS, every_ms=5_000)
    assert len(world.said("waits_for_verdicts")) == 14


def test_a_query_that_finds_nothing_to_plan_says_each_minute_for_which_verdicts_it_waits() -> None:
    """D901: also one that runs on and on; not while a batch runs, and not while verdicts come."""
    world = Hearing(yaml_of(timeout="4s"))
    world.produce(10)
    planner = world.ready()
    batch(planner, BEGINNING, world)
    world.acker = None
    for _ in range(150):
        world.run(1_000)
        planner.report_verdict_wait(world.now_ms)
    assert [line["waited_s"] for line in world.said("waits_for_verdicts")] == [60, 120]
