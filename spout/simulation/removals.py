"""How each safeguard is taken out: what is replaced, and by what. See `ablations`.

Every function returns (owner, name, replacement) for each thing that is replaced while a run lasts. The
replacements do what the product does, without the safeguard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import acker.conflicts
import acker.snapshot
import replay.disposition
import replay.takeover
import spout.batches
import spout.publish
import spout.simulation.world
import spout.tenure
from acker.cohort import Emission, Pin, Session
from acker.contribution import Contribution
from acker.core import PartitionCore
from acker.errors import Aborted
from acker.events import Acks, Init, Reason, SourceRun, Take
from acker.identity import I64, generation_of, position_at
from acker.inbox import Inbox
from acker.indices import Hits
from acker.ledger import Ledger
from acker.log import Outgoing, Record, TopicPartition, Transactions
from acker.marks import Content, Lane, Marks, Seen, TrailingMarks
from acker.partition import PartitionAcker
from acker.register import Register
from acker.restore import Restore
from acker.retention import Retention
from acker.roots import Roots
from acker.sessions import Pending, Sessions, Standing
from acker.verdicts import Settlements
from replay.disposition import Disposition, Policy, Replay, dispose
from replay.due import PROGRESS_KEY
from replay.partition import VerdictPartition
from spout.announce import INIT_RUNS_MAX, Announcer, pieces
from spout.batches import Batches
from spout.collector import Delivery
from spout.cursor import SourceCursor, cursor_of
from spout.intake import Room, choose
from spout.plan import BatchPlan
from spout.publish import Lane as PublishLane
from spout.session import SessionClock, SessionName
from spout.simulation.cluster import Client
from spout.simulation.query import QueryProcess
from spout.sources import SourceSpec
from spout.tenure import Tenure

Replaced = list[tuple[Any, str, Any]]


# -- acker: the ledger


def set_once_init() -> Replaced:
    """Open again what an init names below the watermark."""
    original = Ledger.init

    def init(self: Ledger, emission: Emission, run: SourceRun, ack_from: int) -> None:
        before = self.watermark(run.source)
        self.set_watermark(run.source, 0)
        original(self, emission, run, ack_from)
        self.set_watermark(run.source, max(before, self.watermark(run.source)))

    return [(Ledger, "init", init)]


def one_verdict() -> Replaced:
    """Settle what is named, whether it is open or not."""
    original = Roots.settle

    def settle(self: Roots, at: I64) -> Hits:
        original(self, at)
        return at

    return [(Roots, "settle", settle)]


def fail_beats_zero() -> Replaced:
    """Apply the acks of a step before its fails."""
    fails, acks = PartitionCore.apply_fails, PartitionCore.apply_acks
    held: dict[int, list[Record]] = {}

    def apply_fails(self: PartitionCore, records: Iterable[Record]) -> None:
        held[id(self)] = list(records)

    def apply_acks(self: PartitionCore, records: Iterable[Record]) -> None:
        acks(self, records)
        fails(self, held.pop(id(self), []))

    return [(PartitionCore, "apply_fails", apply_fails), (PartitionCore, "apply_acks", apply_acks)]


def failed_left_out() -> Replaced:
    """Name failed roots in the acks as well, and apply acks first."""
    original = spout.publish._acks

    def _acks(block: Any, plan: BatchPlan, lane: PublishLane) -> Acks:
        return original(replace(block, causes=()), plan, lane)

    return [(spout.publish, "_acks", _acks), *fail_beats_zero()]


def session_of_acks() -> Replaced:
    """Let contributions count for whatever root is there."""

    def within(self: Register, session: Session, source: int, start: int, end: int) -> Iterable[Any]:
        found = self._blocks.get(source, {}).get(start >> 15, [])
        return [cohort for cohort in found if cohort.start < end and cohort.end > start]

    return [(Register, "within", within)]


def timeout_reset() -> Replaced:
    """Leave the deadlines as they are."""
    return [(Ledger, "touch", lambda *_: None), (Ledger, "retouch", lambda *_: None)]


# -- acker: order between topics


def inits_first() -> Replaced:
    """Apply what was fetched, whatever the inits and fails that belong to it."""

    def _read_control(self: Inbox, numbers: list[int]) -> None:
        for number in numbers:
            self.letters[number].fail_end = self._control.position(self._fail(number))

    return [(Inbox, "_read_control", _read_control)]


def ticks_last() -> Replaced:
    """Let what is read count at once."""

    def counting(self: Sessions, reached: object) -> Iterator[Pending]:
        while self.line:
            item = self.line.popleft()
            if not item.take:
                clock = self.groups[item.session.group].clocks[item.session]
                clock.counted_ms = max(clock.counted_ms, item.now_ms)
            yield item

    return [(Sessions, "counting", counting)]


def pending_in_state() -> Replaced:
    """Forget ticks and takes that wait when State is written."""
    return [(acker.snapshot._Index, "pending", lambda self: ())]


def high_watermark() -> Replaced:
    """Ask for last stable offsets where ends are wanted."""

    def ends(self: Client, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self.stable_ends(partitions)

    return [(Client, "ends", ends)]


# -- acker: marks


def crc() -> Replaced:
    """Take a repeat with other content for the same."""
    original = Marks.see

    def see(self: Marks, lane: Lane, content: Content) -> Seen:
        seen = original(self, lane, content)
        return Seen.REPEATED if seen is Seen.DIFFERENT else seen

    return [(Marks, "see", see)]


def marks_per_topic() -> Replaced:
    """Mark acks and fails in one place."""

    def _see_fails(self: PartitionCore, session: Session, fails: Any, record: Record) -> Seen:
        content = Content(fails.seq, fails.source, fails.block, 1)
        return self.ack_marks.now.see(Lane(session, fails.lane), content)

    return [(PartitionCore, "_see_fails", _see_fails)]


def lane_marks() -> Replaced:
    """Take every record for a new one."""
    return [(Marks, "see", lambda self, lane, content: Seen.NEW)]


# -- acker: State and restore


def safe_position() -> Replaced:
    """Let a restart go on where the last step ended."""
    return [(Ledger, "ack_pin", lambda self: None)]


def settled_by_log() -> Replaced:
    """Leave the verdict log unread."""

    def _settle(self: Restore, core: PartitionCore, state: object, verdict: object, end: int) -> None:
        core.ledger.verdict_next = Pin(end, 0)

    return [(Restore, "_settle", _settle)]


def state_watermarks() -> Replaced:
    """Begin every source anew after a restart."""
    return [(Ledger, "set_watermark", lambda self, source, position: None)]


def state_marks() -> Replaced:
    """Begin without marks after a restart."""
    return [
        (Marks, "load", lambda self, lane, mark: None),
        (TrailingMarks, "load", lambda self, lane, mark: None),
    ]


def carried() -> Replaced:
    """Fold again what State carries with its value."""

    def refold(self: Ledger, session: Session, contribution: Contribution, pin: Pin) -> None:
        for cohort in self._register.within(
            session, contribution.source, contribution.start, contribution.end
        ):
            self._contributed(cohort, contribution.add(cohort), pin)

    return [(Ledger, "refold", refold)]


# -- acker and replay: transactions


def _commit_one(
    transactions: Transactions, records: Iterable[Outgoing], timeout_ms: int, *offsets: Any
) -> None:
    transactions.begin()
    for record in records:
        transactions.send(record)
    if offsets:
        transactions.send_offsets(*offsets)
    transactions.commit(timeout_ms)


def acker_transaction() -> Replaced:
    """Commit verdicts, then State."""

    def _commit(
        self: PartitionAcker, records: Sequence[Outgoing], offsets: dict[TopicPartition, int]
    ) -> None:
        timeout_ms = self._limits.operation_ms
        verdicts = [record for record in records if record.topic == self._topics.verdict]
        try:
            _commit_one(self._transactions, verdicts, timeout_ms)
            rest = [record for record in records if record.topic != self._topics.verdict]
            _commit_one(self._transactions, rest, timeout_ms, self._group, offsets)
        except Aborted:
            self._transactions.abort(timeout_ms)
            raise

    return [(PartitionAcker, "_commit", _commit)]


def replay_first() -> Replaced:
    """Commit the progress, then the roots that wait."""
    original = VerdictPartition._transact

    def _transact(self: VerdictPartition, records: Iterable[Outgoing], offsets: Mapping[Any, int]) -> None:
        listed = list(records)
        progress = [record for record in listed if record.key == PROGRESS_KEY]
        rest = [record for record in listed if record.key != PROGRESS_KEY]
        if progress and rest:
            original(self, progress, offsets)
            original(self, rest, {})
        else:
            original(self, listed, offsets)

    return [(VerdictPartition, "_transact", _transact)]


def replay_second() -> Replaced:
    """Commit the copies, then their tombstones."""
    original = VerdictPartition._transact

    def _transact(self: VerdictPartition, records: Iterable[Outgoing], offsets: Mapping[Any, int]) -> None:
        listed = list(records)
        due = self._worker.names.due
        tombstones = [record for record in listed if record.topic == due and record.value is None]
        if tombstones:
            original(self, [record for record in listed if record not in tombstones], {})
            original(self, tombstones, {})
        else:
            original(self, listed, offsets)

    return [(VerdictPartition, "_transact", _transact)]


def _own_ids(stem: str) -> Replaced:
    original = Client.transactions
    numbers = count()

    def transactions(self: Client, transactional_id: str) -> Transactions:
        own = f"{transactional_id}-{next(numbers)}" if stem in transactional_id else transactional_id
        return original(self, own)

    return [(Client, "transactions", transactions)]


def acker_id() -> Replaced:
    """Give each acker that restores a partition an id of its own."""
    return _own_ids("acker")


def replay_id() -> Replaced:
    """Give each worker that opens a partition an id of its own."""
    return _own_ids("replay")


# -- sessions


def lower_session() -> Replaced:
    """Let any session hold the group that asks for it."""
    original = Sessions.standing
    read = PartitionCore._read_take
    asking: set[Session] = set()

    def standing(self: Sessions, session: Session) -> Standing:
        found = original(self, session)
        return Standing.HIGHER if found is Standing.LOWER and session in asking else found

    def _read_take(self: PartitionCore, record: Record, take: Take) -> None:
        session = Session(take.group, take.epoch, take.session)
        asking.add(session)
        read(self, record, take)
        asking.discard(session)

    return [(Sessions, "standing", standing), (PartitionCore, "_read_take", _read_take)]


def from_of_session() -> Replaced:
    """Begin every source at the start of its generation."""

    def of(source: int, from_: int, watermarks: Mapping[int, int], partitions: int) -> SourceCursor:
        return cursor_of(source, position_at(generation_of(from_), 0), watermarks, partitions)

    return [(spout.tenure, "cursor_of", of)]


def inputs_by_group() -> Replaced:
    """Give all groups one input id."""
    alike = spout.simulation.world.INPUT.replace("id: {id}", "id: 1")
    return [
        (spout.simulation.world, "INPUT", alike),
        (acker.conflicts, "_ids", lambda inputs: ()),
        (acker.conflicts, "_readers", lambda inputs: ()),
        (Sessions, "stranger", lambda self, group, source, topic=None: ""),
    ]


# -- spout


def ordered_parts() -> Replaced:
    """Send the parts of an init together, and forget gaps."""

    def init(
        self: Announcer, name: SessionName, now: int, wall_ms: int, runs: Iterable[SourceRun],
        specs: Mapping[int, SourceSpec],
    ) -> None:  # fmt: skip
        parts: dict[tuple[int, str], list[SourceRun]] = {}
        for owner, run in pieces(runs, self._partitions):
            parts.setdefault((owner, specs[run.source].place.topic), []).append(run)
        for (owner, topic), found in sorted(parts.items()):
            spec = specs[found[0].source]
            for first in range(0, len(found), INIT_RUNS_MAX):
                self._send(
                    self._topics.init, owner,
                    Init(
                        self._group, name.id, name.epoch, now, wall_ms, spec.input.timeout_ms,
                        self._partitions, topic, spec.topic_id, tuple(found[first : first + INIT_RUNS_MAX]),
                    ),
                )  # fmt: skip
        self._producer.flush(30_000)

    return [(Announcer, "init", init), *gaps()]


def gaps() -> Replaced:
    """Go on above the highest watermark."""

    def of(source: int, from_: int, watermarks: Mapping[int, int], partitions: int) -> SourceCursor:
        return SourceCursor(from_, cursor_of(source, from_, watermarks, partitions).next)

    return [(spout.tenure, "cursor_of", of)]


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


def tick_of_a_second() -> Replaced:
    """Add to the clock whatever time has passed."""

    def look(self: SessionClock, wall_ms: int, *, idle: bool) -> int:
        self.now += max(0, wall_ms - self._looked_ms)
        self._looked_ms = wall_ms
        return self.now

    return [(SessionClock, "look", look)]


def max_pending() -> Replaced:
    """Choose as if nothing was pending."""

    def unlimited(cursors: Any, ends: Any, input_ids: Any, room: Room) -> list[SourceRun]:
        return choose(cursors, ends, input_ids, Room(room.total, dict.fromkeys(room.by_input, 1 << 30)))

    return [(spout.batches, "choose", unlimited)]


def last_stable_offset() -> Replaced:
    """Plan up to the high watermark."""

    def _ends(self: Batches, sources: Sequence[int]) -> dict[int, int]:
        found = self._log.ends([self._specs[source].place for source in sources])
        return {source: found[self._specs[source].place] for source in sources}

    return [(Batches, "_ends", _ends)]


def decided_before() -> Replaced:
    """Wait for verdicts of roots that were settled before they were planned."""
    return [(Tenure, "_decided_before_emission", lambda *_: None)]


def output_stands() -> Replaced:
    """Publish a batch before its sink has written."""
    return [(QueryProcess, "phases", ("read", "publish", "sink", "commit"))]


def skipped_batch() -> Replaced:
    """Let the sink vouch for bolts that are not deterministic."""
    return [(QueryProcess, "vouches", True)]


# -- replay


def no_early_replay() -> Replaced:
    """Do not wait before a replay."""
    return [(replay.disposition, "delay_ms", lambda backoff, failures, jitter: 0)]


def dead_letter() -> Replaced:
    """Put every root back, however often it was lost."""

    def put_back(
        policy: Policy, reason: Reason, attempt: int, abandoned: int, now_ms: int, jitter: float
    ) -> Disposition:
        decided = dispose(replace(policy, attempts=1_000), reason, attempt, abandoned, now_ms, jitter)
        return decided if isinstance(decided, Replay) else Replay(now_ms)

    return [(replay.takeover, "dispose", put_back)]


def max_abandoned() -> Replaced:
    """Put every root back, however often it was abandoned."""

    def put_back(
        policy: Policy, reason: Reason, attempt: int, abandoned: int, now_ms: int, jitter: float
    ) -> Disposition:
        return dispose(replace(policy, max_abandoned=1_000), reason, attempt, abandoned, now_ms, jitter)

    return [(replay.takeover, "dispose", put_back)]


# -- retention


def verdicts_kept() -> Replaced:
    """Delete verdicts as soon as no restart needs them."""

    def _readable(self: Retention, verdicts: list[TopicPartition], now_ms: int) -> dict[TopicPartition, int]:
        return dict(self.log.ends(verdicts))

    return [(Retention, "_readable", _readable)]


def contributions_kept() -> Replaced:
    """Delete contributions as soon as they are applied."""
    original = PartitionAcker.write

    def write(self: PartitionAcker) -> Any:
        output = original(self)
        self.needed[TopicPartition(self._topics.ack, self.core.partition)] = self.core.ack_next
        return output

    return [(PartitionAcker, "write", write)]


def oldest_first() -> Replaced:
    """Write lost roots youngest first."""
    original = Settlements._entries

    def _entries(self: Settlements) -> Iterator[Any]:
        return iter(reversed(list(original(self))))

    return [(Settlements, "_entries", _entries)]
