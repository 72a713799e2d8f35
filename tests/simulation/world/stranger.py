"""A stranger who may write to the ack topics: in the name of a session, and for groups of his own.

What he writes in another's name is quarantined. That the truth knows by a header, which the product does not
read: it takes no notice of such a record, and waits until each of them is in the quarantine. What he writes
for his own groups counts, and concerns nobody.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from acker.identity import input_id_of, source_of
from acker.kafka.port import Headers, Outgoing
from acker.wire.checks import NAME_CHARS
from acker.wire.codec import wire_codec
from acker.wire.events import Event, Take, TakeSource
from tests.simulation.truth.facts import Holder, KnownSource
from tests.simulation.truth.truth import FORGED
from tests.simulation.world.process import Setting
from tests.support.forged import FORGERIES, Victim

ONE_PARTITION: Final = "init-leaves-a-block-out"
"""With several acker partitions, the block that it leaves out may be another one's."""

QUARANTINED: Final = tuple(forgery for forgery in FORGERIES if forgery.why and forgery.name != ONE_PARTITION)

OWN_INPUT: Final = 16_000
"""His inputs have ids from this one on, which topics.yaml does not have."""

ASKED_BY: Final = "stranger"
"""The session of his takes: what is answered to it is not taken for an answer to another's."""


class Stranger:
    """Writes one record at a time."""

    def __init__(self, world: Setting) -> None:
        """Write nothing yet."""
        self._world = world
        self._codec = wire_codec()
        self._takes = 0

    def write(self) -> None:
        """Write in the name of a session that owns a group, mostly; else take a group of his own."""
        victims = self._victims()
        if victims and self._world.rng.random() < 0.8:
            number, victim = self._world.rng.choice(victims)
            forgery = self._world.rng.choice(QUARANTINED)
            event = forgery.of(victim)
            if isinstance(event, Take) and 0 < len(event.session) < NAME_CHARS:
                event = replace(event, session=ASKED_BY)
            names = self._world.topics.ack_topics
            topic = {"init": names.init, "ack": names.ack, "fail": names.fail}[forgery.topic]
            self._append(topic, number, event, ((FORGED, forgery.name.encode()), *forgery.headers))
        else:
            self._take_own()

    def _victims(self) -> list[tuple[int, Victim]]:
        """Return by acker partition in whose name something can be written there."""
        world = self._world
        victims: list[tuple[int, Victim]] = []
        for number, part in enumerate(world.truth.partitions):
            for found in world.topics.inputs.values():
                holder, entry = part.holders.get(found.group), part.known.get(source_of(found.id, 0))
                if holder is not None and entry is not None:
                    victims.append((number, self._victim(found.group, found.id, holder, entry)))
        return victims

    def _victim(self, group: str, input_id: int, holder: Holder, entry: KnownSource) -> Victim:
        world = self._world
        return Victim(
            group, input_id, world.now_ms, holder.id, holder.epoch, entry.generation, world.truth.count
        )

    def _take_own(self) -> None:
        self._takes += 1
        source = source_of(OWN_INPUT + self._world.rng.randrange(300), self._world.rng.randrange(4))
        group = f"own{input_id_of(source)}"
        named = TakeSource(source, "elsewhere", "id", 0, 0)
        epoch = self._world.rng.choice((1, self._takes, self._world.now_ms))
        take = Take(group, ASKED_BY, epoch, self._world.now_ms, self._world.truth.count, (named,))
        number = self._world.rng.randrange(self._world.truth.count)
        self._append(self._world.topics.ack_topics.init, number, take, ())

    def _append(self, topic: str, number: int, event: Event, headers: Headers) -> None:
        self._world.tell("forged", topic, number, *(value.decode() for _, value in headers[:1] if value))
        record = Outgoing(topic, number, self._codec.encode(event), headers=headers)
        self._world.cluster.at(topic, number).append(record, self._world.now_ms)
