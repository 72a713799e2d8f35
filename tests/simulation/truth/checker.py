"""What every checker has: it is told what happens, and raises `Broken` when that breaks its rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.events import Lost, Taken
from acker.wire.verdict import Verdict
from tests.simulation.truth.facts import Broken, Journalled, RootTruth, SinkRow, SpoutLook
from tests.simulation.truth.truth import Truth


class Checker:
    """Watches one rule; by default everything is right."""

    rule: ClassVar[str]
    """What the rule says, in one line."""

    def initialised(self, truth: Truth, roots: Sequence[RootTruth]) -> None:
        """An `Init` that counts was written; it opens these roots."""

    def taken(self, truth: Truth, partition: int, taken: Taken) -> None:
        """An acker partition answered a `Take`."""

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: Verdict,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """A verdict was committed for the position at `place`; `root` is None if it was never initialised."""

    def disposed(self, truth: Truth, root: RootTruth | None, record: Outgoing, dead: bool) -> None:
        """A copy or a dead letter was committed."""

    def committed(self, truth: Truth, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """A group's offsets were committed."""

    def journalled(self, truth: Truth, batch: Journalled) -> None:
        """Spark's checkpoint holds a batch from here on."""

    def acker_rests(self, truth: Truth, partition: int) -> None:
        """The acker of a partition has read, applied and committed everything that is there."""

    def worker_rests(self, truth: Truth, partition: int, at: int, now_ms: int) -> None:
        """A replay worker had nothing to do in a verdict partition, as it stood at `at`; no fault met it.

        `now_ms` is the time by which it judged: its step's beginning, since when it may have been held up.
        """

    def spout_stepped(self, truth: Truth, look: SpoutLook) -> None:
        """A planning thread has read all verdicts, and has had the chance to commit."""

    def stored(self, truth: Truth, rows: Sequence[SinkRow]) -> None:
        """A store committed rows, in one transaction."""

    def end(self, truth: Truth) -> None:
        """Everything was healed, and nothing moves any more."""

    def require(self, flaw: str, root: RootTruth, *, dead: bool) -> None:
        """Refuse a copy or a dead letter of a root that has a flaw; an empty one is none."""
        if flaw:
            raise self.broken(f"the {'dead letter' if dead else 'copy'} of {root}: {flaw}")

    def broken(self, message: str) -> Broken:
        """Make the error of this rule."""
        return Broken(type(self).__name__, message)
