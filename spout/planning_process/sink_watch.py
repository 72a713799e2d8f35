"""Whether the driver has published the last batch, so that the next one may be planned.

Source: docs/design/protocol.md, section 5.2 ("The ledger that is published").
"""

from __future__ import annotations

from acker.config.settings import UNREACHABLE_MS
from acker.errors import Damaged, TrackingError, unreadable_kind
from acker.kafka.port import DamagedRun
from acker.listing import and_more, offsets_text
from spout.link.driver_link import DriverLink
from spout.planning.journal import Journal
from spout.planning.order import NotAcked

LATE_MS = 5_000
"""A batch without a message after this time went past the sink; a sink in a thread of its own has so long."""

FOLLOWER_LATE_MS = 10_000
"""The same where a follower publishes, beyond what it may wait for fails and then for acks to be durable:
then it says that it failed; only one that is gone says nothing."""


def damage_cure(start: int, end: int, why: str) -> str:
    """Return what becomes of offsets of a source that cannot be read, and what to do.

    They are those from `start` to the one before `end`; `why` has the reason in their reader's
    words.
    """
    until = "until a whole replica leads the partition"
    if unreadable_kind(why).is_of_the_writer:
        until = "since no replica has it otherwise; its writer should cut what it writes"
    return (
        f"all else was handed out. What lies at {offsets_text(start, end)} is FAILED, and waits in"
        f" the replay worker {until}. Start it again to go on behind it; with on_data_loss: skip"
        " for the input it goes on by itself, and that is absent"
    )


class SinkWatch:
    """Whether the sink still owes the last batch that this process has planned.

    A tracked stream that is written past `spout.sink` is never acked: all of its roots would time
    out and come again until they are dead letters, and no error would say why. When Spark asks for
    the next batch, the sink has returned, so the message of this one is there. A *follower*, the
    driver's thread that publishes for sinks of Spark's own, may take `late_ms`. A batch without
    positions, or of an earlier process, owes none.

    Attributes:
        not_acked: which roots of the last batch are not acked by its publication; None: it is not
            published, or nobody has listed them, or somebody has taken them from here.
        damaged: what could not be read of the last batch, for which the query is to end.
    """

    def __init__(self, driver_link: DriverLink, *, durable_ms: int = UNREACHABLE_MS) -> None:
        """Begin without a batch.

        `durable_ms`: how long acks may take to be durable, as for `Publisher`.
        """
        self._driver_link = driver_link
        self._follower_late_ms = 2 * durable_ms + FOLLOWER_LATE_MS
        # the offset behind the batch that is not published yet; None: no batch is owed
        self._owed_end: Journal | None = None
        self.not_acked: tuple[NotAcked, ...] | None = None
        self.damaged: tuple[DamagedRun, ...] = ()

    def expect(self, end: Journal) -> None:
        """Expect the publication of a batch that was planned; `end` is the offset behind it."""
        # without a session nothing is tracked, and without positions nothing is published
        self._owed_end = end if end.session and end.ranges else None
        self.not_acked = None

    def check_owed(self, start: Journal) -> bool:
        """Read what the driver has said of the batch that ends at `start`; return whether it is
        still owed.

        Spark has asked for what comes behind `start`, so that batch has ended. False also if
        another one, or none, was expected. Of a published one this keeps what is `not_acked` and
        `damaged`.
        """
        if self._owed_end is None or start != self._owed_end:
            return False
        publication = self._driver_link.published(self._owed_end.session, self._owed_end.ranges)
        if publication is None:
            return True
        self._owed_end = None
        self.not_acked = publication.not_acked
        self.damaged = publication.damaged
        return False

    @property
    def late_ms(self) -> int:
        """How long the publication of a batch that has ended may take."""
        return LATE_MS if self._driver_link.follower_failure is None else self._follower_late_ms

    def follower_error(self) -> TrackingError | None:
        """Return the error with which the stream's follower failed.

        None: it did not, or there is none.
        """
        # empty: it has not failed; None: there is none
        failure = self._driver_link.follower_failure
        return TrackingError(failure) if failure else None

    def damage_error(self) -> Damaged | None:
        """Return the error that ends the query behind a batch with unreadable parts.

        None: it has none.
        """
        if not self.damaged:
            return None
        run, *others = self.damaged
        cure = damage_cure(run.start, run.end, run.why)
        more = and_more(len(others), "such batches")  # empty: there are no others
        if more:
            cure = f"{cure}, {more}"
        return Damaged(run.topic, run.partition, run.start, run.why, cure)

    def late_error(self) -> TrackingError:
        """Return the error of a batch that was not published in time, by who should have published it."""
        group = self._driver_link.group
        if self._driver_link.has_gone:
            return TrackingError(
                f"group {group}: the driver has gone, or does not answer: nobody knows whether"
                " the last batch was published. Its records come again; start the query again, and keep the"
                " driver's log"
            )
        if self._driver_link.follower_failure is not None:
            return TrackingError(
                f"group {group}: Spark has committed a batch, and the driver has not published"
                f" it within {self.late_ms / 1000:.0f} s, nor said why: its thread windhover-follows-"
                f"{group} has ended or hangs. The batch's records come again; start the query"
                " again, and keep the driver's log"
            )
        return TrackingError(
            f"group {group}: a batch of its tracked stream has ended and nothing of it was"
            " acked or failed, so all of its records would time out and come again; write it with"
            " foreachBatch(spout.sink(write)), start it with spout.start(...), or read it with tracked=False"
        )
