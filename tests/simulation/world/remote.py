"""A program in another lane: it receives tuples of a tree, and acks their edges in batches of its own.

It speaks the wire without Spark, as a program in another language would. What it received, and which batch
it was at, is durable; after a crash it publishes the same batch again, under the same number.
"""

from __future__ import annotations

import numpy as np

from acker.identity import WIRE_BLOCK_BITS
from acker.wire.events import Acks, pack_positions, pack_values
from spout.publishing.publish import Publication, Publisher
from tests.simulation.world.durable import Store
from tests.simulation.world.process import Process, Setting


class RemoteProcess(Process):
    """The program at work."""

    def __init__(self, world: Setting, name: str, store: Store) -> None:
        """Start it on what it has kept."""
        super().__init__(world, name)
        self._store = store
        self._publisher = Publisher(lambda: self.client, world.topics.ack_topics)

    def step(self) -> None:
        """Begin a batch, or publish the one that was begun."""
        store = self._store
        if not store.batch:
            self._begin()
            return
        seq, publication = store.seq, self._publication()
        self.before("remote")
        self._publisher.publish(publication, self.world.topics.acker.partitions)
        self.after("remote")
        if store.seq == seq:  # else another incarnation was faster
            store.batch = []
            store.seq += 1

    def _begin(self) -> None:
        store = self._store
        if not store.queue:
            return
        session = store.queue[0][0]
        mine = [entry for entry in store.queue if entry[0] == session][: self.rng.randint(1, 4)]
        store.queue = [entry for entry in store.queue if entry not in mine]
        store.batch = mine
        for _, _, one in mine:
            self.world.truth.consumed.add((session, *one))

    def _publication(self) -> Publication:
        """Write the batch as records: one for each block of a source, positions ascending."""
        store = self._store
        session, epoch, _ = store.batch[0]
        blocks: dict[tuple[int, int], dict[int, int]] = {}
        for _, _, (source, position, edge) in store.batch:
            folded = blocks.setdefault((source, position >> WIRE_BLOCK_BITS), {})
            folded[position] = folded.get(position, 0) ^ edge
        acks: list[Acks] = []
        for (source, block), folded in sorted(blocks.items()):
            at = sorted(folded)
            acks.append(
                Acks(
                    f"remote/{session}", store.seq, store.group, session, epoch, source, block, runs=(),
                    positions=pack_positions(np.array(at, np.int64)),
                    values=pack_values(np.array([folded[position] for position in at], np.uint64)),
                    absent=(), touched=b"", touched_at=0,
                )
            )  # fmt: skip
        return Publication((), tuple(acks))
