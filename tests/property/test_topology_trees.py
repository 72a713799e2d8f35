"""Random topologies with random failures: the real fold against what the bolts themselves saw."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

from hypothesis import given, settings
from hypothesis import strategies as st

from acker.identity import child_edge, root_edge
from spout.bolts.bolts import BasicBolt, Bolt, OutputDeclarer
from spout.bolts.collectors import AnchoredTuple, BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext
from spout.builder.topology import BoltDeclarer, TopologyBuilder
from spout.topology.graph import Kind
from spout.tuples.failures import FailTuple
from spout.tuples.tuple import Delivery, PlacedTuple, Tuple
from tests.support.published import contributions, failed_roots
from tests.support.worlds.topology_world import SOURCE, TOPICS, run, schema_of

OUTPUT = "roots string, number int"
STREAMS = ("default", "more", "named")
NAMED = "named"
"""The stream on which the emitter names the task."""

UNDONE = -1
"""The number of a tuple that nobody may receive: the call that emitted it failed."""

FIRST = 32_765  # so that the roots lie in two blocks of the wire


@dataclass
class Seen:
    """What happened, as the bolts say.

    Attributes:
        sent: how many deliveries there are of each root.
        ended: each delivery that was received, and whether it was acked.
        failed: roots of the tuples that were failed.
        undone: tuples that were received though the call that emitted them failed.
    """

    sent: Counter[int] = field(default_factory=Counter)
    ended: dict[Delivery, bool] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    undone: int = 0

    def receive(self, received: Tuple) -> None:
        """Take note of a tuple: each of its deliveries is the only one of its place."""
        if "number" in received and received["number"] == UNDONE:
            self.undone += 1
        for delivery in deliveries_of(received):
            assert delivery not in self.ended
            self.ended[delivery] = False

    def ack(self, received: Tuple) -> None:
        """Take note of an ack."""
        self.ended.update(dict.fromkeys(deliveries_of(received), True))

    @property
    def acked(self) -> Counter[int]:
        """How many deliveries of each root were acked."""
        return Counter(delivery.root for delivery, acked in self.ended.items() if acked)

    def value(self, root: int) -> int:
        """Fold a root by definition: an acked delivery's edge, and those of its children, received or not."""
        first = Delivery(root, ())
        here = {first: root_edge(SOURCE, FIRST + root)}
        for delivery in sorted((d for d in self.ended if d.root == root), key=lambda d: len(d.path)):
            parent = here[Delivery(root, delivery.path[:-1])]
            here[delivery] = child_edge(parent, *delivery.path[-1])
        value = 0
        for delivery, edge in here.items():
            if delivery == first or self.ended[delivery]:
                value ^= edge
            if len(delivery.path) and self.ended.get(Delivery(root, delivery.path[:-1]), True):
                value ^= edge
        return value


@dataclass
class Readers:
    """How many tasks get an emission on each stream of each component, and how many a named one may name."""

    copies: dict[tuple[str, str], int] = field(default_factory=dict)
    named_tasks: dict[str, int] = field(default_factory=dict)


class Case:
    """The case that runs now; bolts are copied for each task, and write here."""

    seen: ClassVar[Seen] = Seen()
    readers: ClassVar[Readers] = Readers()
    numbers: ClassVar[Iterator[int]] = count()
    acts: ClassVar[tuple[str, ...]] = ("ack",)


def deliveries_of(received: Tuple) -> tuple[Delivery, ...]:
    """Return the places of a tuple in its trees."""
    assert isinstance(received, AnchoredTuple | PlacedTuple)
    return received.deliveries


def roots_of(received: Tuple) -> set[int]:
    """Return the roots that a tuple descends from, as its values say."""
    if "roots" not in received:
        return {int(received["value"])}
    return {int(root) for root in received["roots"].split()}


def told(name: str, stream: str, anchors: Iterable[Tuple]) -> tuple[str, int]:
    """Take note of an emission and return its values."""
    roots: set[int] = set()
    for anchor in anchors:
        roots |= roots_of(anchor)
        for delivery in deliveries_of(anchor):
            Case.seen.sent[delivery.root] += Case.readers.copies.get((name, stream), 0)
    return " ".join(map(str, sorted(roots))), next(Case.numbers)


class Rich(Bolt):
    """Holds all tuples of its task, emits on some of them together, then acks, fails or forgets each."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def declare(self, declarer: OutputDeclarer) -> None:
        """Declare all streams."""
        for stream in STREAMS:
            declarer.declare(OUTPUT, stream=stream, direct=stream == NAMED)

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Begin without tuples."""
        self._collector = collector
        self._context = context
        self._random = random.Random(f"{self._seed} {context.name} {context.partition}")
        self._held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        """Keep it."""
        Case.seen.receive(tuple)
        self._held.append(tuple)

    def cleanup(self) -> None:
        """Do everything."""
        name = self._context.name
        for _ in range(self._random.randrange(2 * len(self._held) + 1)):
            anchors = self._random.sample(self._held, self._random.randint(0, min(3, len(self._held))))
            stream = self._random.choice(STREAMS)
            values = told(name, stream, anchors)
            tasks = Case.readers.named_tasks.get(name, 1)
            if stream == NAMED:
                self._collector.emit_direct(self._random.randrange(tasks), values, anchors, stream)
            else:
                self._collector.emit(values, anchors=anchors, stream=stream)
        for held in self._held:
            self._settle(held)

    def _settle(self, held: Tuple) -> None:
        act = self._random.choice(Case.acts)
        if act == "ack":
            Case.seen.ack(held)
            self._collector.ack(held)
        elif act == "fail":
            Case.seen.failed |= roots_of(held)
            self._collector.fail(held, "drawn")


class Basic(BasicBolt):
    """Emits some tuples for each one; fails now and then, and nothing of that call is delivered."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def declare(self, declarer: OutputDeclarer) -> None:
        """Declare two streams."""
        for stream in STREAMS[:2]:
            declarer.declare(OUTPUT, stream=stream)

    def prepare(self, context: BoltContext) -> None:
        """Begin."""
        self._name = context.name
        self._random = random.Random(f"{self._seed} {context.name} {context.partition}")

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit, then fail now and then."""
        Case.seen.receive(tuple)
        fails = self._random.choice(Case.acts) == "fail"
        for _ in range(self._random.randrange(3)):
            stream = self._random.choice(STREAMS[:2])
            if fails:
                collector.emit(("", UNDONE), stream=stream)
            else:
                collector.emit(told(self._name, stream, [tuple]), stream=stream)
        if fails:
            Case.seen.failed |= roots_of(tuple)
            raise FailTuple("drawn")
        Case.seen.ack(tuple)


class Forward(Bolt):
    """Emits one tuple for each, so that what it joins leaves with one anchor each, as arrays."""

    output = OUTPUT

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Begin."""
        self._name = context.name
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit and ack."""
        Case.seen.receive(tuple)
        self._collector.emit(told(self._name, "default", [tuple]), anchors=tuple)
        Case.seen.ack(tuple)
        self._collector.ack(tuple)


def subscribe(bolt: BoltDeclarer, kind: Kind, component: str, stream: str) -> None:
    """Subscribe by a grouping."""
    if kind in (Kind.FIELDS, Kind.PARTIAL_KEY):
        fields = ("value",) if component == "lines" else ("roots",)
        getattr(bolt, f"{kind}_grouping")(component, *fields, stream=stream)
    else:
        getattr(bolt, f"{kind}_grouping")(component, stream)


def drawn(seed: int) -> TopologyBuilder:
    """Draw a topology: its bolts read any streams that are there before them, or those of one layer."""
    here = random.Random(seed)
    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    if here.random() < 0.5:
        draw_layers(builder, here, seed)
        return builder
    streams = [("lines", "default")]
    for number in range(here.randint(1, 6)):
        name = f"bolt{number}"
        rich = here.random() < 0.6
        parallelism = here.choice((None, None, 1, 2, 3))
        bolt = builder.set_bolt(name, (Rich if rich else Basic)(seed), parallelism)
        for component, stream in here.sample(streams, here.randint(1, min(3, len(streams)))):
            kinds = [kind for kind in Kind if kind is not Kind.DIRECT]
            kind = Kind.DIRECT if stream == NAMED else here.choice(kinds)
            subscribe(bolt, kind, component, stream)
        streams += [(name, stream) for stream in (STREAMS if rich else STREAMS[:2])]
    return builder


def draw_layers(builder: TopologyBuilder, here: random.Random, seed: int) -> None:
    """Draw layers, each of which reads all of the one before: the places of a join are equally deep.

    Names are drawn too, since the keys of subscriptions come from them, and half of these have the highest
    bit, which makes numbers negative.
    """
    layer = ["lines"]
    for depth in range(here.randint(4, 6)):
        names = [f"{depth}{here.random()}" for _ in range(here.choice((1, 2)))]
        for name in names:
            bolt = builder.set_bolt(name, here.choice((Basic(seed), Forward())), here.choice((None, 3)))
            for component in layer:
                bolt.shuffle_grouping(component)
        layer = names


def readers_of(builder: TopologyBuilder) -> Readers:
    """Count the deliveries of an emission on each stream, from the compiled plan."""
    readers = Readers()
    for route in builder.compile(schema_of, cores=2).layout.routes:
        producer = tuple(route.subscription.producer)
        readers.copies[producer] = readers.copies.get(producer, 0) + route.receiving_tasks
        if producer[1] == NAMED:
            before = readers.named_tasks.get(producer[0], route.tasks)
            readers.named_tasks[producer[0]] = min(before, route.tasks)
    return readers


ACTS = (("ack",), ("ack",) * 14 + ("fail", "hold"), ("ack", "hold"))
"""What becomes of a tuple, equally often: some topologies ack all, some hold every other."""


@settings(max_examples=240, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 7), st.sampled_from(ACTS))
def test_a_root_is_acked_exactly_when_every_delivery_of_its_tree_was_acked(
    seed: int, roots: int, acts: tuple[str, ...]
) -> None:
    """S28, S29, S31, S54, S76, S78, S166: whatever way its tuples took through branches and joins."""
    builder = drawn(seed)
    Case.seen, Case.readers, Case.numbers, Case.acts = Seen(), readers_of(builder), count(), acts
    for root in range(roots):
        Case.seen.sent[root] += Case.readers.copies.get(("lines", "default"), 0)
    ran = run(builder, [b"%d" % root for root in range(roots)], first=FIRST)
    seen = Case.seen
    folded = contributions(ran.publication, SOURCE, FIRST)
    assert failed_roots(ran.publication, FIRST) == seen.failed
    assert Counter(delivery.root for delivery in seen.ended) == +seen.sent
    assert seen.undone == 0
    left = set(range(roots)) - seen.failed
    assert {root: folded.get(root, 0) for root in left} == {root: seen.value(root) for root in left}
    done = {root for root in left if folded.get(root) == root_edge(SOURCE, FIRST + root)}
    assert done == {root for root in left if seen.acked[root] == seen.sent[root]}
