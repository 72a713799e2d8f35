"""An input id that a group without a right to it has is freed, and its owner's query has all of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acker.config.limits import AckerLimits
from acker.config.topics import Topics
from acker.errors import Disagreement, Fenced, UsageError
from acker.identity import GENERATION_MAX, generation_of, position_at, source_of
from acker.kafka.port import Log, Outgoing
from acker.service.freeing import Claim, Freeing, next_generations
from acker.wire.codec import wire_codec
from acker.wire.events import Event, Init, SourceRun, Take, TakeSource
from spout.cli import main as cli
from spout.cli import operate as cli_operate
from spout.planning.journal import BEGINNING
from tests.support.memory.clients import NoFaults
from tests.support.worlds import acker_world
from tests.support.worlds.planning import World, batch

SOURCE = source_of(1, 0)
STRANGER = "stranger"


def write(world: World, events: list[Event]) -> None:
    """Write to all partitions of ``_ack_init``, and let the acker read it."""
    producer = world.log.producer()
    for event in events:
        for partition in range(3):
            value = wire_codec().encode(event)
            producer.send(Outgoing(world.topics.ack_topics.init, partition, value))
    producer.flush(0)
    world.run(2_000)


def claim(world: World, *, with_roots: bool, group: str = STRANGER, session: str = "x") -> None:
    """Let a stranger take the input's id before its first owner, and perhaps open three roots of it."""
    take = Take(group, session, 1, 0, 3, (TakeSource(SOURCE, "elsewhere", "id", 0, 0),))
    init = Init(group, session, 1, 0, 0, 0, 3, "elsewhere", "id", (SourceRun(SOURCE, 0, 3),))
    write(world, [take, init] if with_roots else [take])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Let the command see a cluster in memory with ten records, of an input that nobody has read."""
    made = World()
    made.produce(10)

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield made.topics, made.cluster.log()

    monkeypatch.setattr(cli_operate, "opened", opened)
    return made


@pytest.mark.parametrize("arguments", [["sentences"], ["--group", STRANGER]])
@pytest.mark.parametrize("with_roots", [False, True])
def test_an_id_that_a_stranger_claimed_is_had_again(
    world: World, capsys: pytest.CaptureFixture[str], arguments: list[str], with_roots: bool
) -> None:
    """O1804: before, the input's owner was refused for good: nothing could free the id."""
    claim(world, with_roots=with_roots)
    with pytest.raises(Disagreement, match=r"input 1 is of group stranger.*`windhover acker free`"):
        world.ready()
    world.planners.clear()

    assert cli.run(["acker", "free", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "acker partition 0: input id 1 is of group stranger, topic elsewhere, 1 sources" in shown
    assert "nothing was changed; with --execute" in shown
    with pytest.raises(Disagreement):
        world.ready()
    world.planners.clear()

    assert cli.run(["acker", "free", *arguments, "--execute"]) == 0
    assert "3 acker partitions are changed" in capsys.readouterr().out
    world.run(12_000)  # the acker, which was fenced, leaves them alone for ten seconds
    assert world.lost("ABANDONED") == (3 if with_roots else 0)
    planner = world.ready()
    assert generation_of(planner.first_uninitialised_positions()[SOURCE]) == (1 if with_roots else 0)
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(1_000)
    assert planner.status(world.now_ms).acked == 10
    world.kill_acker()
    world.start_acker()
    world.run(1_000)
    assert cli.run(["acker", "free", "sentences", "--execute"]) == 0
    assert "no other group has the id" in capsys.readouterr().out


@pytest.mark.parametrize("with_roots", [False, True])
def test_an_id_whose_group_may_have_open_roots_in_a_store_is_freed_only_without_the_store(
    world: World, capsys: pytest.CaptureFixture[str], with_roots: bool
) -> None:
    """D3223: as `windhover release` refuses it. Where nothing is open, there is nothing to write again."""
    claim(world, with_roots=with_roots, session="x-store")
    assert cli.run(["acker", "free", "sentences"]) == 0
    code = cli.run(["acker", "free", "sentences", "--execute"])
    said = capsys.readouterr()
    if with_roots:
        assert code == 1
        assert "group stranger is of session 1/x-store, which writes exactly once into a store" in said.err
        assert "add --without-store" in said.err
        assert cli.run(["acker", "free", "sentences", "--execute", "--without-store"]) == 0
        said = capsys.readouterr()
    assert "3 acker partitions are changed" in said.out


def test_a_freed_id_is_nobodys_until_it_is_taken(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """What the stranger announces then is refused and counted, and its group needs a take of its own."""
    claim(world, with_roots=True)
    assert cli.run(["acker", "free", "sentences", "--execute"]) == 0
    world.run(12_000)
    assert world.acker is not None
    refused = world.acker.status().counts.refused
    position = int(position_at(1, 0))
    run = SourceRun(SOURCE, position, position + 2)
    write(world, [Init(STRANGER, "x", 1, 0, 0, 0, 3, "elsewhere", "id", (run,))])
    assert world.acker.status().open_roots == 0
    assert world.acker.status().counts.refused > refused


def test_an_id_is_not_taken_from_its_own_group(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    planner = world.ready()
    assert cli.run(["acker", "free", "sentences", "--execute"]) == 0
    assert "no other group has the id of input sentences" in capsys.readouterr().out
    assert cli.run(["acker", "free", "--group", "g", "--execute"]) == 0
    assert "0 acker partitions are changed" in capsys.readouterr().out
    assert planner.is_ready
    assert cli.run(["acker", "free"]) == 2
    assert cli.run(["acker", "free", "sentences", "--group", "x"]) == 2


def freeing(world: acker_world.World, log: Log | None = None) -> Freeing:
    return Freeing(
        log or world.writer_log, acker_world.TOPICS, world.partitions, "windhover-acker", world.limits
    )


def test_there_is_room_for_so_many_sources_and_groups_and_freeing_makes_it_again() -> None:
    """O1805: before, a few records could let State grow until no acker could write it."""
    limits = AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, sources=3, groups=2, fenced_ms=0)
    world = acker_world.World(limits=limits)
    honest, stranger = world.session(), world.session("x", group=STRANGER)
    honest.take()
    stranger.take(sources=[source_of(7, 0), source_of(7, 1), source_of(7, 2)])
    stranger.take(sources=[source_of(7, 0), source_of(7, 1)])
    world.session("y", group="third").take(sources=[])
    honest.take(sources=[source_of(1, 4)])
    world.settle()
    reasons = [answer.refused for answer in world.taken() if answer.refused]
    assert ["more than 3 sources" in reasons[0], "more than 2 groups" in reasons[1]] == [True, True]
    assert all("acker free --group" in reason for reason in reasons)
    assert len(world.quarantined()) == 3

    made = freeing(world)
    claims = made.read_claims(lambda _, group: group == STRANGER)
    assert [(one.input_id, one.sources) for one in claims] == [(7, (source_of(7, 0), source_of(7, 1)))]
    assert made.free(lambda _, group: group == STRANGER, claims, [STRANGER]) == 1
    world.crash()
    honest.take(sources=[source_of(1, 4)])
    world.session("y", group="third").take(sources=[source_of(8, 0)])
    world.settle()
    assert [answer.refused for answer in world.taken()[-2:]] == ["", ""]


class FencedAtFirst(NoFaults):
    """Lets an acker take a partition back while it is freed, so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def before(self, operation: str) -> None:
        if operation == "commit" and self.left:
            self.left -= 1
            raise Fenced("another process owns this transactional id")


@pytest.mark.parametrize(("times", "is_done"), [(2, True), (50, False)])
def test_an_acker_that_takes_its_partition_back_is_fenced_again(times: int, is_done: bool) -> None:
    world = acker_world.World()
    world.session("x", group=STRANGER).take()
    world.settle()
    made = freeing(world, world.cluster.log(FencedAtFirst(times)))
    claims = made.read_claims(lambda _, group: group == STRANGER)
    if is_done:
        assert made.free(lambda _, group: group == STRANGER, claims, ()) == 1
        assert made.read_claims(lambda _, group: group == STRANGER) == []
    else:
        with pytest.raises(Fenced):
            made.free(lambda _, group: group == STRANGER, claims, ())


def test_what_was_initialised_after_the_look_is_not_initialised_again() -> None:
    world = acker_world.World()
    stranger = world.session("x", group=STRANGER)
    stranger.take()
    world.settle()
    made = freeing(world)
    claims = made.read_claims(lambda _, group: group == STRANGER)
    stranger.init((0, 5))
    world.settle()
    with pytest.raises(UsageError, match="a session goes on with source 65539 of input id 1"):
        made.free(lambda _, group: group == STRANGER, claims, ())


def test_nothing_follows_on_the_last_generation() -> None:
    last = Claim(0, 7, "g", ("t",), (SOURCE,), {SOURCE: GENERATION_MAX})
    with pytest.raises(UsageError, match=r"give the input a new id in topics\.yaml"):
        next_generations([last])
    two = [Claim(p, 7, "g", ("t",), (SOURCE,), {SOURCE: generation}) for p, generation in enumerate((0, 4))]
    assert next_generations(two) == {SOURCE: 5}
