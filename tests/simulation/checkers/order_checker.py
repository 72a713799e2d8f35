"""Order: what was acked of one line, batch by batch."""

from __future__ import annotations

from typing import assert_never

from acker.identity import generation_of, offset_of, partition_of
from acker.wire.events import Lost
from acker.wire.verdict import Verdict
from replay.records.headers import parse_location
from tests.simulation.truth.checker import Checker
from tests.simulation.truth.facts import Holder, Journalled, RootTruth
from tests.simulation.truth.truth import Truth

Line = tuple[str, int, bytes | None]
"""Group, partition, and key; None where the partition is one line."""


class InOrder(Checker):
    """The ordering of an input.

    A takeover counts in each acker partition by itself, perhaps before the acks of a batch there and behind
    them in another one. What it puts back of such a batch comes again behind what was acked of it.
    """

    rule = "of one key (or partition) what is acked in a batch comes behind what was acked in those before"

    def __init__(self) -> None:
        """Begin with nothing acked."""
        self._batches: dict[tuple[str, Holder, int, int], int] = {}
        self._count = 0
        self._acked: dict[Line, list[tuple[int, int]]] = {}
        self._put_back: dict[tuple[Line, int], int] = {}
        self._rewound: set[str] = set()

    def journalled(self, truth: Truth, batch: Journalled) -> None:
        """Number the batches as they were journalled; a root is of the first of its session that names it.

        A batch of a session that was superseded meanwhile initialises nothing; the next one plans it anew.
        """
        self._count += 1
        for source, start, end in batch.ranges:
            for position in range(start, end):
                self._batches.setdefault((batch.group, batch.holder, source, position), self._count)

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: Verdict,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """Note what is acked or put back, and of which line it is."""
        if root is None or not truth.input_of(root).ordered:
            return
        if generation_of(root.position):
            self._rewound.add(root.group)  # what was acked before a rewind is acked again
        number = partition_of(root.source)
        record = truth.cluster.at(root.topic, number).visible(int(offset_of(root.position)))
        origin = parse_location(root.origin)
        batch = self._batches.get((root.group, root.holder, root.source, root.position))
        by_key = truth.input_of(root).ordering == "key"
        if record is None or origin is None or batch is None or (by_key and record.key is None):
            return
        line = root.group, number, record.key if by_key else None
        match kind:
            case Verdict.ACKED:
                self._acked.setdefault(line, []).append((batch, origin[2]))
            case Verdict.ABANDONED:
                lowest = self._put_back.get((line, batch), origin[2])
                self._put_back[line, batch] = min(lowest, origin[2])
            case Verdict.ABSENT | Verdict.FAILED | Verdict.TIMED_OUT:
                pass
            case _:
                assert_never(kind)

    def end(self, truth: Truth) -> None:
        """Compare, line by line."""
        for line, acked in self._acked.items():
            origins = [
                origin
                for batch, origin in sorted(acked)
                if origin < self._put_back.get((line, batch), origin + 1)
            ]
            if line[0] not in self._rewound and origins != sorted(origins):
                raise self.broken(f"of {line} were acked, as (batch, origin): {sorted(acked)}")
