"""A planning process that has taken its group: settles, ticks, commits, and looks for new partitions.

Source: docs/design/protocol.md, sections 3 (rules 6 and 8) and 5.1.
"""

from __future__ import annotations

from contextlib import suppress

from acker.errors import SessionSuperseded, Unreachable
from acker.wire.causes import HELD
from acker.wire.events import Reason, Taken, Verdicts
from spout.group.announce import SIGNS_AT
from spout.group.commits import Committer
from spout.group.due_watch import DueWatch
from spout.group.ground import Ground
from spout.group.growth import Growth
from spout.group.presence import SIGN_EVERY_MS, described
from spout.group.tenure import Tenure
from spout.planner.batches import Batches
from spout.planner.mailbox import PlannerStatus
from spout.planner.order_watch import OrderWatch
from spout.planning.session import SessionName
from spout.planning.window import ABSENT, ACKED

TICK_EVERY_MS = 500

POSITION_BYTES = 8
"""A lost root's position, as verdicts pack it."""


class HeldGroup:
    """A group whose session this process runs."""

    def __init__(
        self, ground: Ground, tenure: Tenure, batches: Batches, now_ms: int, order: OrderWatch | None = None
    ) -> None:
        """Begin with the books of a session, and with what plans its batches; `order`: in which order."""
        self.batches = batches
        self._order = order
        self._held = 0
        self._ground = ground
        self._tenure = tenure
        self._committer = Committer(ground.log, ground.spec.group, ground.sources)
        self._committer.claim(tenure.committable())
        self._growth = Growth(ground, tenure.name, now_ms)
        self._ticked_ms: int | None = None
        self._due: DueWatch | None = None
        self._lost_below: dict[int, int] = {}
        self._has_left = False
        self._signed_ms = now_ms  # by the Take

    def read(self, partition: int, offset: int, event: Taken | Verdicts, now_ms: int) -> None:
        """Settle, or learn of another session."""
        if isinstance(event, Verdicts):
            self._note_lost(partition, offset, event)
            if self._tenure.settle(partition, event):
                self.batches.progressed(now_ms)
            self._ground.heard(event)
            if event.lost:
                self._lost_below[partition] = offset + 1
            return
        if (
            event.group == self._ground.spec.group
            and SessionName(event.epoch, event.session) > self._tenure.name
        ):
            raise self._superseded(SessionName(event.epoch, event.session), now_ms)
        self._growth.read(partition, event)
        self._tenure.read(partition, event)

    def _superseded(self, by: SessionName, now_ms: int) -> SessionSuperseded:
        self._has_left = True  # the group is another's: this process has nothing to leave
        spec = self._ground.spec
        other = described(self._ground.log, spec.topics.init, spec.partitions, spec.group, by, now_ms)
        return SessionSuperseded(
            f"{other} took group {spec.group} from session {self._tenure.name}; what was open is replayed"
            f" there. Stop that query before this one is started again with {spec.way}"
        )

    def _note_lost(self, partition: int, offset: int, verdicts: Verdicts) -> None:
        if self._order is not None:
            self._order.heard(partition, offset, verdicts)
        held = sum(
            len(lost.positions) // POSITION_BYTES
            for lost in verdicts.lost
            if lost.error == HELD and lost.source in self._ground.sources
        )
        if held:
            self._held += held
            self.batches.held(held)

    def step(self, now_ms: int) -> None:
        """Move the clock, tick where roots are open, give signs of life, commit now and then."""
        now = self._tenure.look(now_ms)
        due = self._ticked_ms is None or now_ms - self._ticked_ms >= TICK_EVERY_MS or now_ms < self._ticked_ms
        partitions = self._tenure.ticked_partitions()
        if due and self._ground.announcer is not None and partitions:
            self._ticked_ms = self._signed_ms = now_ms
            self._has_left = False
            self._tenure.clock.told()
            self._ground.announcer.tick(self._tenure.name, now, partitions)
        self._sign(now, now_ms)
        self._ask_of_sibling(now, now_ms)
        for one, cursor in self._growth.step(now, now_ms):
            self._ground.sources[one.source] = one
            self._tenure.add_source(one.source, cursor)
        self._committer.step(self._tenure.committable, now_ms, idle=self._tenure.is_idle)

    def _sign(self, now: int, now_ms: int) -> None:
        """Give a sign of life now and then where no tick does; the clock that it tells stands still."""
        announcer = self._ground.announcer
        if announcer is None or self._has_left or 0 <= now_ms - self._signed_ms < SIGN_EVERY_MS:
            return
        self._signed_ms = now_ms
        announcer.tick(self._tenure.name, now, (SIGNS_AT,))

    def _ask_of_sibling(self, now: int, now_ms: int) -> None:
        """Ask what the process before told last, once it can no longer live."""
        sibling, announcer = self._tenure.sibling, self._ground.announcer
        if sibling is not None and announcer is not None and (to := sibling.to_ask(now_ms)):
            announcer.take(sibling.question, now, (), to)

    def free(self) -> dict[int, int]:
        """Return the first position of each source that was never initialised."""
        return {source: cursor.first_free for source, cursor in self._tenure.cursors.items()}

    def is_drained(self) -> bool:
        """Tell whether nothing is pending, due or left to plan.

        In this order: a root that is lost is due before its copy stands on the replay topic, never after.
        """
        if not self._tenure.is_idle or self._tenure.unjournalled:
            return False
        if not self.batches.is_all_planned(replay=False):
            return False
        if self._ground.announcer is None:
            return True
        if self._due is None:
            topic, sources = self._ground.spec.topics.due, frozenset(self._ground.sources)
            self._due = DueWatch(self._ground.log, topic, self._ground.spec.partitions, sources)
        return self._due.is_over(self._lost_below) and self.batches.is_all_planned(replay=True)

    def status(self, state: str, error: str, now_ms: int) -> PlannerStatus:
        """Return what there is to tell."""
        window, name = self._tenure.window, self._tenure.name
        counts = window.counts
        oldest_ms = window.oldest_emitted_ms()
        committed = {str(self._ground.sources[s]): at for s, at in self._committer.committed().items()}
        return PlannerStatus(
            state=state, group=self._ground.spec.group, session=name.id, epoch=name.epoch,
            batches=self.batches.count, emitted=window.emitted, replayed=self.batches.replayed,
            pending=window.pending, acked=counts.get(ACKED, 0), absent=counts.get(ABSENT, 0),
            failed=counts.get(Reason.FAILED, 0), timed_out=counts.get(Reason.TIMED_OUT, 0),
            abandoned=counts.get(Reason.ABANDONED, 0), late=window.late, unknown=window.unknown,
            lost_from_log=self.batches.lost_from_log,
            oldest_pending_ms=0 if oldest_ms is None else max(0, now_ms - oldest_ms),
            batch_ms=self.batches.took_ms, batch_records_max=self.batches.records_max,
            clock=self._tenure.clock.now, committed=committed,
            commit_failures=self._committer.failures, error=error, wall=now_ms,
            held=self._held, waits={} if self._order is None else dict(self._order.why),
            held_now={} if self._order is None else dict(self._order.held),
        )  # fmt: skip

    def commit(self) -> None:
        """Commit what is settled."""
        self._committer.commit(self._tenure.committable())

    def leave(self) -> None:
        """Say that nothing is to come of this process, unless it plans something after all."""
        if self._has_left or self._ground.announcer is None:
            return
        self._has_left = True
        with suppress(Unreachable):  # then the silence that follows says it, some seconds later
            self._ground.announcer.leave(self._tenure.name, self._tenure.clock.now)

    def close(self) -> None:
        """Commit what is settled and leave."""
        self.commit()
        self.leave()
        if self._due is not None:
            self._due.close()
        if self._order is not None:
            self._order.close()
