"""How each safeguard is taken out: what is replaced, and by what. See `ablations`.

Every function returns (owner, name, replacement) for each thing that is replaced while a run lasts. The
replacements do what the product does, without the safeguard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import acker.config.topics
import acker.service.snapshot
import acker.wire.checks
import spout.group.running_session
import spout.planning_process.batches
import spout.publishing.publish
from acker.errors import Aborted, WindhoverError
from acker.hot_paths import Indices
from acker.identity import I64
from acker.kafka.port import Outgoing, Record, TopicPartition, Transactions
from acker.ledger.cohort import InitEmission, Pin, Session
from acker.ledger.contribution import Contribution
from acker.ledger.ledger import Ledger, Register
from acker.ledger.marks import Content, Marks, Seen, SessionLane, TrailingMarks
from acker.ledger.output import StepOutput
from acker.ledger.roots import Roots
from acker.ledger.sessions import QueuedTick, Sessions
from acker.root_sets.root_set import NO_ROOTS, RootSet
from acker.service.core import PartitionCore
from acker.service.partition import PartitionAcker
from acker.service.restore import Restore
from acker.service.silent import WritesUnderWay
from acker.service.step_reader import StepReader
from acker.wire.events import SourceRun
from replay.records.due import PROGRESS_KEY
from replay.worker.partition import VerdictPartition
from tests.simulation.world.cluster import Client

Replaced = list[tuple[Any, str, Any]]
Finished = list[tuple[PartitionAcker, StepOutput | WindhoverError]]


# -- acker: the ledger


def set_once_init() -> Replaced:
    """Open again what an init names below the watermark."""
    original = Ledger.open_run

    def open_run(self: Ledger, emission: InitEmission, run: SourceRun, ack_from: int) -> None:
        before = self.watermark(run.source)
        self.set_watermark(run.source, 0)
        original(self, emission, run, ack_from)
        self.set_watermark(run.source, max(before, self.watermark(run.source)))

    return [(Ledger, "open_run", open_run)]


def one_verdict() -> Replaced:
    """Settle what is named, whether it is open or not."""
    original = Roots.settle

    def settle(self: Roots, indices: I64) -> Indices:
        original(self, indices)
        return indices

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

    def _failed_roots(outcome: Any) -> RootSet:
        return NO_ROOTS

    return [(spout.publishing.publish, "_failed_roots", _failed_roots), *fail_beats_zero()]


def session_of_acks() -> Replaced:
    """Let contributions count for whatever root is there."""

    def cohorts_within(self: Register, session: Session, source: int, start: int, end: int) -> Iterable[Any]:
        found = self._cohorts_by_source_and_block.get(source, {}).get(start >> 15, [])
        return [cohort for cohort in found if cohort.start < end and cohort.end > start]

    return [(Register, "cohorts_within", cohorts_within)]


def timeout_reset() -> Replaced:
    """Leave the deadlines as they are."""
    return [(Ledger, "touch", lambda *_: None), (Ledger, "retouch", lambda *_: None)]


# -- acker: order between topics


def inits_first() -> Replaced:
    """Apply what was fetched, whatever the inits and fails that belong to it."""

    def _read_control_topics(self: StepReader, now_ms: int) -> None:
        for number in self._active_partitions():
            found = self.records[number]
            found.fails_ready_until = self._control_reader.position(TopicPartition(self._topics.fail, number))
        self._control_end_by_place = {}

    return [(StepReader, "_read_control_topics", _read_control_topics)]


def ticks_last() -> Replaced:
    """Let what is read count at once."""

    def pop_reached(self: Sessions, reached: object) -> Iterator[QueuedTick]:
        while self.queue:
            item = self.queue.pop_oldest()
            if not item.is_take:
                clock = self.groups[item.session.group].clocks[item.session]
                clock.counted_ms = max(clock.counted_ms, item.now_ms)
            yield item

    return [(Sessions, "pop_reached", pop_reached)]


def pending_in_state() -> Replaced:
    """Forget ticks and takes that wait when State is written."""
    return [(acker.service.snapshot, "_stored_ticks", lambda queue, number_session: ())]


def high_watermark() -> Replaced:
    """Ask for last stable offsets where ends are wanted."""

    def ends(self: Client, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self.stable_ends(partitions)

    return [(Client, "ends", ends)]


# -- acker: marks


def crc() -> Replaced:
    """Take a repeat with other content for the same."""
    original = Marks.compare_and_mark

    def compare_and_mark(self: Marks, lane: SessionLane, content: Content) -> Seen:
        seen = original(self, lane, content)
        return Seen.REPEATED if seen is Seen.DIFFERENT else seen

    return [(Marks, "compare_and_mark", compare_and_mark)]


def marks_per_topic() -> Replaced:
    """Mark acks and fails in one place."""

    def _compare_and_mark_fails(self: PartitionCore, record: Record, session: Session, fails: Any) -> Seen:
        content = Content(fails.seq, fails.source, fails.block, 1)
        return self.ack_marks.latest.compare_and_mark(SessionLane(session, fails.lane), content)

    return [(PartitionCore, "_compare_and_mark_fails", _compare_and_mark_fails)]


def lane_marks() -> Replaced:
    """Take every record for a new one."""
    return [(Marks, "compare_and_mark", lambda self, lane, content: Seen.NEW)]


# -- acker: what one record can claim


def bounds() -> Replaced:
    """Believe every clock and every epoch."""

    def wrong_clock(now: int, written_ms: int) -> str:
        return ""

    def wrong_epoch(epoch: int, written_ms: int) -> str:
        return ""

    return [(acker.wire.checks, "wrong_clock", wrong_clock), (acker.wire.checks, "wrong_epoch", wrong_epoch)]


# -- acker: State and restore


def safe_position() -> Replaced:
    """Let a restart go on where the last step ended."""
    return [(Ledger, "oldest_ack_pinned", lambda self: None)]


def settled_by_log() -> Replaced:
    """Leave the verdict log unread."""

    def _settle_logged_roots(
        self: Restore, core: PartitionCore, state: object, place: object, end: int
    ) -> None:
        core.ledger.verdict_end_pin = Pin(end, 0)

    return [(Restore, "_settle_logged_roots", _settle_logged_roots)]


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
        for cohort in self._open_cohorts.cohorts_within(
            session, contribution.source, contribution.start, contribution.end
        ):
            self._pin_contributed(cohort, contribution.fold_unsettled(cohort), pin)

    return [(Ledger, "refold", refold)]


# -- acker and replay: transactions


def _commit_one(transactions: Transactions, records: Iterable[Outgoing], timeout_ms: int) -> None:
    transactions.begin()
    transactions.send_all(records)
    transactions.commit(timeout_ms)


def acker_transaction() -> Replaced:
    """Commit State, then verdicts."""

    def _write_in_transaction(self: PartitionAcker, records: Sequence[Outgoing]) -> None:
        timeout_ms = self._limits.operation_ms
        verdicts = [record for record in records if record.topic == self._topics.verdict]
        try:
            rest = [record for record in records if record.topic != self._topics.verdict]
            _commit_one(self._transactions, rest, timeout_ms)
            _commit_one(self._transactions, verdicts, timeout_ms)
        except Aborted:
            self._transactions.abort(timeout_ms)
            raise

    return [(PartitionAcker, "_write_in_transaction", _write_in_transaction)]


def writes_awaited() -> Replaced:
    """Take a transaction for committed when it has been begun."""

    def take_finished_outcomes(self: WritesUnderWay) -> Finished:
        writes = list(self._writes.values())
        self._writes = {}
        return [(write.acker, write.acker.record_written(write.prepared)) for write in writes]

    return [(WritesUnderWay, "take_finished_outcomes", take_finished_outcomes)]


def replay_first() -> Replaced:
    """Commit the progress, then the roots that wait."""
    original = VerdictPartition._run_transaction

    def _run_transaction(self: VerdictPartition, records: Iterable[Outgoing]) -> Sequence[int]:
        listed = list(records)
        progress = [record for record in listed if record.key == PROGRESS_KEY]
        rest = [record for record in listed if record.key != PROGRESS_KEY]
        if progress and rest:
            original(self, progress)
            return original(self, rest)
        return original(self, listed)

    return [(VerdictPartition, "_run_transaction", _run_transaction)]


def replay_second() -> Replaced:
    """Commit the copies, then their tombstones."""
    original = VerdictPartition._run_transaction

    def _run_transaction(self: VerdictPartition, records: Iterable[Outgoing]) -> Sequence[int]:
        listed = list(records)
        due = self._worker.ack_topics.due
        tombstones = [record for record in listed if record.topic == due and record.value is None]
        if not tombstones:
            return original(self, listed)
        entry_offsets = original(self, [record for record in listed if record not in tombstones])
        original(self, tombstones)
        return entry_offsets

    return [(VerdictPartition, "_run_transaction", _run_transaction)]


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
