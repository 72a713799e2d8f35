"""How the safeguards of sessions, spout, replay and retention are taken out. See `removals`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import acker.config.topics
import acker.ledger.sessions
import acker.service.snapshot
import replay.policy.disposition
import replay.worker.accept
import replay.worker.partition
import spout.group.running_session
import spout.planning.supply
import spout.planning_process.batches
import spout.publishing.publish
import tests.simulation.world.layout
from acker.identity import generation_of, position_at
from acker.kafka.port import Bound, OffsetAnswers, Record, TopicPartition
from acker.ledger.cohort import Session
from acker.ledger.sessions import SessionRank, Sessions
from acker.ledger.verdicts import VerdictSet
from acker.service.core import PartitionCore
from acker.service.partition import PartitionAcker, PreparedWrite
from acker.service.service import Retention
from acker.wire.events import PositionRun, SourceRun, Take
from acker.wire.leader_epochs import LeaderEpochs
from replay.policy.disposition import Action, Disposition, LostEmission, Policy, Replay, Rule, dispose
from spout.group.announce import Reach
from spout.group.opening import Opening
from spout.group.session_state import SessionEvent
from spout.planning.intake import Room, Sharing, SourceCursor, cursor_of
from spout.planning.session import SessionClock, SessionName
from spout.planning.supply import Sighting
from spout.planning.window import Window
from spout.planning_process.batches import Batches
from spout.tuples.tuple import Delivery
from tests.simulation.world.query import QueryProcess

Replaced = list[tuple[Any, str, Any]]


# -- sessions


def lower_session() -> Replaced:
    """Let any session hold the group that asks for it."""
    original = Sessions.rank
    read = PartitionCore._read_take
    asking: set[Session] = set()

    def rank(self: Sessions, session: Session, written_ms: int | None = None) -> SessionRank:
        found = original(self, session, written_ms)
        return SessionRank.HIGHER if found is SessionRank.LOWER and session in asking else found

    def _read_take(self: PartitionCore, record: Record, take: Take) -> None:
        session = Session(take.group, take.epoch, take.session)
        asking.add(session)
        read(self, record, take)
        asking.discard(session)

    return [(Sessions, "rank", rank), (PartitionCore, "_read_take", _read_take)]


def from_of_session() -> Replaced:
    """Begin every source at the start of its generation."""

    def of(source: int, from_: int, watermarks: Mapping[int, int], partitions: int) -> SourceCursor:
        return cursor_of(source, position_at(generation_of(from_), 0), watermarks, partitions)

    return [(spout.group.running_session, "cursor_of", of)]


def inputs_by_group() -> Replaced:
    """Give all groups one input id."""
    alike = tests.simulation.world.layout.INPUT.replace("id: {id}", "id: 1")
    return [
        (tests.simulation.world.layout, "INPUT", alike),
        (acker.config.topics, "_repeated_ids", lambda inputs: ()),
        (acker.config.topics, "_topics_read_twice", lambda inputs: ()),
        (Sessions, "contradiction", lambda self, group, source, topic=None: ""),
    ]


# -- spout


def gaps() -> Replaced:
    """Go on above the highest watermark."""

    def of(source: int, from_: int, watermarks: Mapping[int, int], partitions: int) -> SourceCursor:
        return SourceCursor(from_, cursor_of(source, from_, watermarks, partitions).next)

    return [(spout.group.running_session, "cursor_of", of)]


def ordinals() -> Replaced:
    """Number every delivery 0."""

    def child(self: Delivery, subscription: int, ordinal: int) -> Delivery:
        return Delivery(self.root, (*self.path, (subscription, 0)))

    return [(Delivery, "child", child)]


def clock_stands_still() -> Replaced:
    """Begin a session's clock at wall time."""
    original = SessionClock.__init__

    def begin(self: SessionClock, now: int, wall_ms: int) -> None:
        original(self, max(now, wall_ms), wall_ms)

    return [(SessionClock, "__init__", begin)]


def process_before() -> Replaced:
    """Think that the process before is gone at a restart, with nothing unanswered and nothing untold."""
    fresh = Opening._ask_for_owner

    def begin(self: Opening, now_ms: int) -> None:
        if self._journal.session:
            session = SessionName(self._journal.epoch, self._journal.session)
            self._session_states.process(SessionEvent.QUESTION_SENT)
            sources = self._takes_by_source({})
            self._start_round(SessionEvent.SESSION_RESUMED, session, sources, clock_ms=now_ms, now_ms=now_ms)
        else:
            fresh(self, now_ms)

    return [
        (spout.group.running_session, "Sibling", lambda *_: None),
        (acker.ledger.sessions, "UNSENT_MS_MAX", 0),
        (Opening, "_ask_for_owner", begin),
    ]


def tick_of_a_second() -> Replaced:
    """Add to the clock whatever time has passed."""

    def advance(self: SessionClock, wall_ms: int, *, idle: bool) -> int:
        self.now += max(0, wall_ms - self._advanced_ms)
        self._advanced_ms = wall_ms
        return self.now

    return [(SessionClock, "advance", advance)]


def rules() -> Replaced:
    """Try again whatever failed."""
    retries = Rule(None, None, Action.RETRY)
    return [(replay.policy.disposition, "rule_of", lambda rules, operator, error: retries)]


def max_pending() -> Replaced:
    """Choose as if nothing was pending."""

    share_out = Sharing.share_out

    def unlimited(self: Sharing, count_by_source: Any, input_by_source: Any, room: Room) -> dict[int, int]:
        boundless = replace(room, by_input=dict.fromkeys(room.by_input, 1 << 30))
        return share_out(self, count_by_source, input_by_source, boundless)

    return [(Sharing, "share_out", unlimited)]


def restored_pending() -> Replaced:
    """Gate as if nothing that an earlier process left open was pending."""
    left: dict[int, tuple[Window, set[tuple[int, int]]]] = {}  # with the window, so that no other gets its id

    def restore(self: Window, runs: Sequence[SourceRun], now_ms: int) -> None:
        found = left.setdefault(id(self), (self, set()))[1]
        found |= {(source, position) for source, start, end in runs for position in range(start, end)}
        restore_all(self, runs, now_ms)

    def count_pending(self: Window, source: int) -> int:
        found = left.get(id(self), (self, set()))[1]
        known = sum(bool(self.pending_within(of, at, at + 1)) for of, at in found if of == source)
        return count_all_pending(self, source) - known

    restore_all, count_all_pending = Window.restore, Window.count_pending
    return [(Window, "restore", restore), (Window, "count_pending", count_pending)]


def last_stable_offset() -> Replaced:
    """Plan up to the high watermark."""

    def _ask_bounds(self: Batches, sources: Iterable[int], reach: Reach, bound: Bound) -> OffsetAnswers:
        if bound is Bound.STABLE_END:
            return bounds_of(self, sources, self._log, Bound.END)
        return bounds_of(self, sources, reach, bound)

    bounds_of = Batches._ask_bounds
    return [(Batches, "_ask_bounds", _ask_bounds)]


def seen_holes() -> Replaced:
    """Take what lies behind a look for empty."""

    def _sighted_run(run: PositionRun, sighting: Sighting | None) -> Any:
        beyond = sighting and sighting._replace(end=max(sighting.end, run.end))
        return sighted_run(run, beyond)

    sighted_run = spout.planning.supply._sighted_run
    return [(spout.planning.supply, "_sighted_run", _sighted_run)]


def output_stands() -> Replaced:
    """Publish a batch before its sink has written."""
    return [(QueryProcess, "phases", ("read", "publish", "sink", "commit"))]


def skipped_batch() -> Replaced:
    """Let the sink vouch for bolts that are not deterministic."""
    return [(QueryProcess, "vouches", True)]


# -- replay


def no_early_replay() -> Replaced:
    """Do not wait before a replay."""
    return [(replay.policy.disposition, "delay_ms", lambda backoff, failures, jitter: 0)]


def dead_letter() -> Replaced:
    """Put every root back, however often it was lost."""

    def put_back(policy: Policy, lost: LostEmission, now_ms: int, jitter: float) -> Disposition:
        decided = dispose(replace(policy, attempts=1_000), lost, now_ms, jitter)
        return decided if isinstance(decided, Replay) else Replay(now_ms)

    return [(replay.worker.accept, "dispose", put_back)]


def max_abandoned() -> Replaced:
    """Put every root back, however often it was abandoned."""

    def put_back(policy: Policy, lost: LostEmission, now_ms: int, jitter: float) -> Disposition:
        return dispose(replace(policy, max_abandoned=1_000), lost, now_ms, jitter)

    return [(replay.worker.accept, "dispose", put_back)]


def leader_epochs() -> Replaced:
    """Compare a lost record with the epoch of the takeover alone."""
    return [(replay.worker.partition, "read_epochs", lambda headers: LeaderEpochs())]


# -- retention


def verdicts_kept() -> Replaced:
    """Delete verdicts as soon as no restart needs them."""

    def _deletable_ends(
        self: Retention, verdict_places: list[TopicPartition], now_ms: int
    ) -> dict[TopicPartition, int]:
        return dict(self.log.ends(verdict_places))

    return [(Retention, "_deletable_ends", _deletable_ends)]


def contributions_kept() -> Replaced:
    """Delete contributions as soon as they are applied."""
    original = PartitionAcker.record_written

    def record_written(self: PartitionAcker, write: PreparedWrite) -> Any:
        output = original(self, write)
        self.needed_offsets[TopicPartition(self._topics.ack, self.core.partition)] = self.core.ack_next
        return output

    return [(PartitionAcker, "record_written", record_written)]


def oldest_first() -> Replaced:
    """Write lost roots youngest first."""
    original = VerdictSet._lost_entries

    def _lost_entries(self: VerdictSet) -> Iterator[Any]:
        return iter(reversed(list(original(self))))

    return [(VerdictSet, "_lost_entries", _lost_entries)]
