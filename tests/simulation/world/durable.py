"""What outlives a process: Spark's checkpoint of a query, and what a program in another lane keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from acker.errors import UsageError
from spout.planning.journal import Journal, journal_of
from tests.simulation.world.topology import Sent


class CheckpointTaken(UsageError):
    """Another driver wrote the entry of the checkpoint first."""


@dataclass(slots=True)
class Checkpoint:
    """What Spark keeps of a query.

    Attributes:
        query: its id.
        group: the group that it reads for.
        offsets: of each batch, the offset behind it.
        commits: batches that are done.
        written: batches that the sink has written.
    """

    query: str
    group: str
    offsets: list[Journal] = field(default_factory=list)
    commits: int = 0
    written: set[int] = field(default_factory=set)

    def add(self, batch: int, end: Journal) -> None:
        """Write the offset of a batch.

        Raises:
            CheckpointTaken: it stands there already.
        """
        if batch != len(self.offsets):
            raise CheckpointTaken(f"batch {batch} of {self.query} was written by another driver")
        self.offsets.append(journal_of(end.to_json()))

    def commit(self, batch: int) -> None:
        """Write that a batch is done.

        Raises:
            CheckpointTaken: it stands there already.
        """
        if batch != self.commits:
            raise CheckpointTaken(f"batch {batch} of {self.query} was committed by another driver")
        self.commits += 1


@dataclass(slots=True)
class Store:
    """What the program keeps.

    Attributes:
        group: the group that it works for.
        queue: what it received and has not worked on: session, epoch, tuple.
        known: what it received, each once.
        batch: its present batch, empty when there is none.
        seq: number of the present or next batch.
    """

    group: str
    queue: list[tuple[str, int, Sent]] = field(default_factory=list)
    known: set[tuple[str, Sent]] = field(default_factory=set)
    batch: list[tuple[str, int, Sent]] = field(default_factory=list)
    seq: int = 0

    def receive(self, session: str, epoch: int, sent: Sequence[Sent]) -> None:
        """Take tuples in; one that came before is the same."""
        for one in sent:
            if (session, one) not in self.known:
                self.known.add((session, one))
                self.queue.append((session, epoch, one))
