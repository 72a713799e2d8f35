"""`windhover roots` asks a picture that has read nothing but the ackers' States."""

from __future__ import annotations

from collections import Counter

from acker.config.topics import parse
from spout.picture.loader import PicturePart
from spout.planning.journal import BEGINNING
from spout.questions.open_roots import OpenRoots, root_picture
from tests.support.memory.cluster import NoFaults
from tests.support.pictures import picture_of, rows_of, values_of
from tests.support.worlds.planning import World, batch, emit_ten
from tests.support.worlds.roots_world import world_of_roots

TWO_INPUTS = """
acker: {partitions: 3}
inputs:
  apples: {id: 2, group: g, partitions: 1}
  bananas: {id: 1, group: g, partitions: 1}
"""


class Questions(NoFaults):
    """Counts what is asked of a broker."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def before(self, operation: str) -> None:
        self.counts[operation] += 1


def shown(world: World, limit: int = 100) -> OpenRoots:
    inputs = tuple(world.topics.inputs.values())
    with root_picture(world.log, world.topics, inputs) as picture:
        return picture.open_roots(older_than_ms=0, limit=limit, now_ms=world.now_ms)


def test_open_roots_alone_are_read_from_the_states_and_nobody_is_asked_for_the_ackers() -> None:
    """Who is in a group takes the time of an operation to ask, and the command asks it once by itself."""
    world, _ = world_of_roots()
    questions = Questions()
    made = picture_of(
        world.cluster.log(questions), world.topics, world.now_ms, parts={PicturePart.OPEN_ROOTS}
    )
    whole = picture_of(world.log, world.topics, world.now_ms)
    open_rows = "SELECT * FROM emissions WHERE state = 'open' ORDER BY topic, partition, offset"
    assert rows_of(made, open_rows) == rows_of(whole, open_rows)
    assert values_of(made, "SELECT DISTINCT state FROM emissions") == [("open",)]
    states = "SELECT acker, state_at, is_behind, open_roots, state_bytes FROM ackers ORDER BY acker"
    assert values_of(made, states) == values_of(whole, states)
    assert [rows_of(made, table) for table in ("sessions", "verdicts", "waiting", "inputs")] == [[]] * 4
    assert questions.counts["members"] == 0


def test_of_roots_that_were_emitted_together_those_of_the_input_with_the_lower_id_come_first() -> None:
    world = World(TWO_INPUTS)
    for topic in ("apples", "bananas"):
        world.produce(2, topic=topic)
    batch(world.ready(), BEGINNING, world)
    world.run(1_500)
    names = [row["root"] for row in shown(world).rows]
    assert names == ["bananas/0@0", "bananas/0@1", "apples/0@0", "apples/0@1"]


def test_a_run_of_neighbours_is_cut_where_no_more_roots_are_shown() -> None:
    world = World()
    emit_ten(world, skip=range(10))
    assert [len(shown(world, limit).rows) for limit in (1, 9, 10, 11)] == [1, 9, 10, 10]
    assert [row["root"] for row in shown(world, 2).rows] == ["sentences/0@0", "sentences/0@1"]
    assert shown(world, 2).total == 10


def test_roots_of_an_input_that_nobody_asked_for_are_neither_shown_nor_counted() -> None:
    """So are those of an input that topics.yaml has no more."""
    world, _ = world_of_roots()
    text = "acker: {partitions: 3}\ninputs:\n  orders: {id: 2, group: h, partitions: 1}\n"
    world.topics = parse(text, file="topics.yaml", environ={})
    answer = shown(world)
    assert [row["root"] for row in answer.rows] == ["orders/0@0", "orders/0@1"]
    assert answer.total == 2
