"""One acker partition, pure: records of its three topics go in, records of the verdict topic come out.

The service calls these methods in one step, in this order. Rules (a) and (b) are the orders between topics in
docs/design/protocol.md, section 4:

1. `read_inits`: inits open roots; takes and ticks join the line, those of lower sessions are refused; (a)
2. `set_ends`: what joined the line gets its barrier; (b)
3. `apply_fails`, then `apply_acks`: FAILED goes before ABSENT, and in each sweep ABSENT before ACKED; (a)
4. `count`: takes and ticks count whose barrier is reached; (b)
5. `take_output`: returns what to write, all in one transaction.

Source: docs/design/protocol.md, sections 3, 4 and 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from isal import isal_zlib  # its CRC-32, which reads every packed value, is ten times as fast as zlib's

from acker.config.limits import AckerLimits
from acker.errors import CodecError
from acker.hot_paths import distinct
from acker.identity import I64, generation_of
from acker.kafka.port import Record
from acker.ledger.cohort import InitEmission, Pin, Session
from acker.ledger.contribution import Contribution
from acker.ledger.ledger import Ledger
from acker.ledger.marks import Content, Marks, Seen, SessionLane, TrailingMarks
from acker.ledger.output import AckerEventKind, OutputBuilder, StepOutput
from acker.ledger.sessions import Barrier, Pending, SessionRank, Sessions
from acker.ledger.verdicts import RUN_BYTES, SOURCE_BYTES, LossCause, in_records
from acker.service.bins import Bins
from acker.service.passed_over import marked_offset
from acker.wire import checks
from acker.wire.clusters import UNKNOWN_CLUSTER, other_cluster
from acker.wire.codec import Codec, read_acks
from acker.wire.events import (
    Acks,
    Event,
    Fails,
    Init,
    SourceRun,
    Take,
    Taken,
    TakenSource,
    Tick,
    positions,
)
from acker.wire.lateness import LateCounts, read_too_late
from acker.wire.leader_epochs import EpochStep, LeaderEpochs, read_epochs
from acker.wire.passed_calls import passed_calls_header, read_passed_calls
from acker.wire.stacks import read_stacks
from acker.wire.verdict import Verdict

NONDETERMINISTIC = "NONDETERMINISTIC"
QUESTION_EPOCH = 0

SWEEP_BYTES = 1 << 20
"""Contributions are folded in sweeps of about this size, which stay in the processor's cache."""


RECORD_BYTES = 4_096
"""Even the shortest record costs a restart some 50 microseconds, as much as reading so many bytes."""


class _AcceptedAcks(NamedTuple):
    """Contributions that are to be applied, of a record at `pin`."""

    session: Session
    acks: Acks
    contribution: Contribution
    pin: Pin


class PartitionCore:
    """The state of one acker partition; `init_next`, `ack_next` and `fail_next` are the next to apply.

    Below the offset `ahead_until` of ``_ack_init`` are the inits for which the ledger keeps verdicts. What
    came too late for a watermark is counted in `too_late`, by group, since State first had it.
    `leader_epochs` are those in which roots were emitted. `cluster_id` is empty where it is unknown.
    """

    def __init__(self, partition: int, partitions: int, limits: AckerLimits, codec: Codec[Event]) -> None:
        self.partition = partition
        self.partitions = partitions
        self.limits = limits
        self.codec = codec
        self.init_next = self.ack_next = self.fail_next = 0
        self.ack_bytes = 0
        self.ahead_until = 0
        self.ledger = Ledger()
        self.sessions = Sessions(limits.pending_ticks, limits.sources, limits.groups)
        self.ack_marks = TrailingMarks(limits.lanes)
        self.fail_marks = Marks(limits.lanes)
        self.bins = Bins()
        self.outbox = OutputBuilder(partition, codec)
        self.too_late: dict[str, LateCounts] = {}
        self.leader_epochs = LeaderEpochs()
        self.cluster_id = UNKNOWN_CLUSTER
        self._acks_header = codec.header(Acks)

    # -- 1. inits, ticks and takes

    def read_inits(self, records: Iterable[Record]) -> None:
        for record in records:
            event = self._decode_init(record)
            if isinstance(event, Take):
                self._read_take(record, event)
            elif isinstance(event, Tick):
                self._read_tick(record, event)
            elif isinstance(event, Init):
                self._read_init(record, event)
            elif event is not None:
                self._quarantine(record, f"{type(event).__name__} does not belong into this topic")
            self.init_next = record.offset + 1

    def _read_take(self, record: Record, take: Take) -> None:
        flaw = checks.wrong_take(take, record.timestamp_ms)
        if flaw:
            self._quarantine(record, flaw)
            if checks.AHEAD in flaw:  # of a machine whose clock is wrong; nobody else waits for an answer
                self._refuse(take.group, take.session, flaw)
            return
        objection = self.sessions.objection(take)
        if take.partitions != self.partitions:
            objection = f"the ack topics have {self.partitions} partitions, the take says {take.partitions}"
        if objection:
            self._quarantine(record, objection)
            self._refuse(take.group, take.session, objection)
            return
        session = Session(take.group, take.epoch, take.session)
        if take.epoch <= QUESTION_EPOCH:
            self._write_refusal(take.group, take.session, f"epoch {take.epoch} only asks")
            detail = f"session {take.session} asks who holds group {take.group}"
            self.outbox.report(AckerEventKind.QUERIED, detail)
        elif self.sessions.rank(session, record.timestamp_ms) is SessionRank.LOWER:
            self._refuse(take.group, take.session, self._owner_text(take.group))
        else:
            for overtaken in self.sessions.take(take):
                self._refuse(take.group, overtaken.session.id, self._owner_text(take.group))

    def _read_tick(self, record: Record, tick: Tick) -> None:
        session = Session(tick.group, tick.epoch, tick.session)
        if self._is_from_owner(record, session, checks.wrong_take(tick, record.timestamp_ms), 1):
            self.sessions.tick(session, tick.now)

    def _read_init(self, record: Record, init: Init) -> None:
        session = Session(init.group, init.epoch, init.session)
        flaw = checks.wrong_init(
            init, self.partition, self.partitions, self.limits.init_roots, record.timestamp_ms
        )
        if init.partitions != self.partitions:
            flaw = f"the ack topics have {self.partitions} partitions, the init says {init.partitions}"
        if not self._is_from_owner(record, session, flaw, sum(run.end - run.start for run in init.runs)):
            return
        for run in init.runs:
            stranger = self.sessions.stranger(init.group, run.source, init.topic)
            if stranger:
                self._quarantine(record, stranger)
                return
        left_out = self._left_out(init)
        if left_out:
            self._quarantine(record, left_out)
            return
        grace_ms = self.sessions.emit(session, init.now)
        timeout_ms = init.timeout_ms + grace_ms if init.timeout_ms > 0 else init.timeout_ms
        emission = InitEmission(session, init.topic, init.topic_id, init.now, init.wall, timeout_ms)
        epochs = read_epochs(record.headers)
        for run in init.runs:
            if self._is_emitted(init.group, run):
                # what lies below the watermark was emitted before, perhaps in another epoch
                first_new = max(run.start, self.ledger.watermark(run.source))
                if first_new < run.end:
                    self.leader_epochs.add(EpochStep(run.source, first_new, epochs.at(run.source, first_new)))
                self.ledger.init(emission, run, self.ack_next)
            else:
                self.ledger.counts.refused += run.end - run.start

    def _is_emitted(self, group: str, run: SourceRun) -> bool:
        """Return whether a run lies in the present generation of a source of its group."""
        source = self.sessions.sources.get(run.source)
        if source is None or source.group != group:
            return False
        last_position = max(run.start, run.end - 1)
        return generation_of(run.start) == source.generation == generation_of(last_position)

    def _left_out(self, init: Init) -> str:
        """Return which positions an init would leave uninitialised for ever, if these are a block or more.

        A spout initialises what it reads without a gap. What an init leaves out counts as initialised: no
        spout would read it, and it would get no verdict.
        """
        reached: dict[int, int] = {}  # by source, the first position behind what this init has so far
        for run in init.runs:
            if not self._is_emitted(init.group, run):
                continue
            source_start = self.sessions.sources[run.source].from_
            first_allowed = max(reached.get(run.source, self.ledger.watermark(run.source)), source_start)
            block = checks.left_out_block(
                run.source, first_allowed, run.start, self.partition, self.partitions
            )
            if block is not None:
                return f"it leaves out positions of source {run.source} from {block} on, before {run.start}"
            reached[run.source] = max(first_allowed, run.end)
        return ""

    def _is_from_owner(self, record: Record, session: Session, flaw: str, weight: int) -> bool:
        rank = self.sessions.rank(session)
        if flaw:
            self._quarantine(record, flaw)
        elif rank is SessionRank.LOWER:
            self.ledger.counts.refused += weight
        elif rank is not SessionRank.OWNER:
            self._quarantine(record, "its session has not taken the group")
        return not flaw and rank is SessionRank.OWNER

    # -- 2. barriers

    def set_ends(self, ack_end: int, fail_end: int) -> None:
        """Set the ends of ``_ack_ack`` and ``_ack_fail``, fetched after the last `read_inits`."""
        self.sessions.set_barrier(Barrier(ack_end, fail_end))

    # -- 3. fails and contributions

    def apply_fails(self, records: Iterable[Record]) -> None:
        for record in records:
            event = self._decode(record)
            if isinstance(event, Fails):
                self._apply_fails(record, event)
            elif event is not None:
                self._quarantine(record, f"{type(event).__name__} does not belong into this topic")
            self.fail_next = record.offset + 1

    def _apply_fails(self, record: Record, fails: Fails) -> None:
        flaw = checks.wrong_fails(fails, self.partition, self.partitions)
        flaw = flaw or self.sessions.stranger(fails.group, fails.source)
        if flaw:
            self._quarantine(record, flaw)
            return
        session = Session(fails.group, fails.epoch, fails.session)
        seen = self._see_fails(session, fails, record)
        if self._is_fresh(seen, record, session, fails):
            decided_ms = self.sessions.clock(session).counted_ms
            self.outbox.note_stacks(read_stacks(record.headers))
            self._pass_on_calls(record)
            for cause in fails.causes:
                loss_cause = LossCause(Verdict.FAILED, cause.operator, cause.error, cause.message, decided_ms)
                self.ledger.fail(session, fails.source, distinct(positions(cause.positions)), loss_cause)

    def apply_acks(self, records: Iterable[Record]) -> None:
        sweep: list[Record] = []
        sweep_bytes = 0
        for record in records:
            sweep.append(record)
            sweep_bytes += len(record.value or b"")
            if sweep_bytes >= SWEEP_BYTES:
                self._sweep(sweep)
                sweep, sweep_bytes = [], 0
        self._sweep(sweep)

    def _sweep(self, records: Sequence[Record]) -> None:
        """Apply some contributions: first repeats with other content, then absent roots, then values.

        Repeats fail their roots, and FAILED goes before ABSENT, and ABSENT before ACKED.
        """
        accepted: list[_AcceptedAcks] = []
        for record in records:
            event = self._decode_acks(record)
            if isinstance(event, Acks):
                session = Session(event.group, event.epoch, event.session)
                contribution = self._accept(record, session, event)
                if contribution is not None:
                    pin = Pin(record.offset, self.ack_bytes)
                    accepted.append(_AcceptedAcks(session, event, contribution, pin))
                    self._pass_on(record, session)
            elif event is not None:
                self._quarantine(record, f"{type(event).__name__} does not belong into this topic")
            self.ack_bytes += weight(record.value)
            self.ack_next = record.offset + 1
        for session, acks, _, _ in accepted:
            if acks.absent:
                self.ledger.absent(session, acks.source, acks.absent)
        for session, acks, contribution, pin in accepted:
            self.ledger.fold(session, contribution, pin)
            if acks.touched:
                touched_positions = distinct(positions(acks.touched))
                self.ledger.touch(session, acks.source, touched_positions, acks.touched_at, pin)

    def _pass_on(self, record: Record, session: Session) -> None:
        """Write behind the verdicts what contributions note, and count what they note of a watermark."""
        self._pass_on_calls(record)
        note = read_too_late(record.headers) if record.headers else None
        if note is None or note.group != session.group or not self.sessions.has_clock(session):
            return
        # a note of tomorrow would be the last one of its group for good
        if not checks.wrong_clock(note.wall, record.timestamp_ms):
            self.outbox.note_too_late(note)
            self.too_late[note.group] = self.too_late.get(note.group, LateCounts()).plus(note)

    def _pass_on_calls(self, record: Record) -> None:
        """Write behind the verdicts which calls passed when they were made again."""
        note = read_passed_calls(record.headers) if record.headers else None
        if note is not None:
            (header,) = passed_calls_header(*note) or (None,)
            if header is not None:
                self.outbox.pass_on(header)

    def contribution(self, acks: Acks, written_ms: int) -> tuple[Contribution | None, str]:
        """Check and unpack contributions; if they cannot be applied, return None and the reason.

        The broker has their record since `written_ms`.
        """
        flaw = checks.wrong_acks(acks, self.partition, self.partitions)
        flaw = flaw or checks.wrong_touch(acks, written_ms)
        flaw = flaw or self.sessions.stranger(acks.group, acks.source)
        contribution = None if flaw else Contribution(acks)
        if contribution is not None and contribution.outside:
            return None, checks.OUTSIDE
        return contribution, flaw

    def _accept(self, record: Record, session: Session, acks: Acks) -> Contribution | None:
        contribution, flaw = self.contribution(acks, record.timestamp_ms)
        if contribution is None:
            self._quarantine(record, flaw)
            return None
        seen = self.see_acks(record, session, acks)
        return contribution if self._is_fresh(seen, record, session, acks) else None

    def _is_fresh(self, seen: Seen, record: Record, session: Session, event: Acks | Fails) -> bool:
        """Return whether a record is to be applied, by what the marks show.

        If not: a repeat is counted, one with other content fails its roots, and a record of too many lanes is
        quarantined.
        """
        if seen is Seen.NO_ROOM:
            self._quarantine(record, f"more than {self.limits.lanes} lanes")
        elif seen is Seen.REPEATED:
            self.ledger.counts.repeated_records += 1
        elif seen is Seen.DIFFERENT:
            self._differs(session, event)
        return seen is Seen.NEW

    def see_acks(self, record: Record, session: Session, acks: Acks) -> Seen:
        """Compare a record of contributions with the marks, and mark it if it is new."""
        if not self.sessions.has_clock(session):
            return Seen.NEW
        content = Content(acks.seq, acks.source, acks.block, isal_zlib.crc32(record.value or b""))
        return self.ack_marks.see(record.offset, SessionLane(session, acks.lane), content)

    def _see_fails(self, session: Session, fails: Fails, record: Record) -> Seen:
        if not self.sessions.has_clock(session):
            return Seen.NEW
        content = Content(fails.seq, fails.source, fails.block, isal_zlib.crc32(record.value or b""))
        return self.fail_marks.see(SessionLane(session, fails.lane), content)

    def _differs(self, session: Session, record: Acks | Fails) -> None:
        """Fail what a repeat with other content names: a bolt did something else on a re-run."""
        self.ledger.counts.nondeterministic_records += 1
        message = f"lane {record.lane}, batch {record.seq}: written again with other content"
        block_text = f"source {record.source}, block {record.block}"
        self.outbox.report(AckerEventKind.NONDETERMINISTIC, f"{message}, {block_text}")
        decided_ms = self.sessions.clock(session).counted_ms
        loss_cause = LossCause(Verdict.FAILED, "", NONDETERMINISTIC, message, decided_ms)
        self.ledger.fail(session, record.source, distinct(_named(record)), loss_cause)

    # -- 4. ticks and takes

    def pass_to(self, init_next: int, fail_next: int, ack_next: int) -> None:
        """Move the positions up to where the topics were read, also past markers and aborted records."""
        self.init_next = max(self.init_next, init_next)
        self.fail_next = max(self.fail_next, fail_next)
        self.ack_next = max(self.ack_next, ack_next)
        if self.ledger.ahead_pin and self.init_next >= self.ahead_until:
            self.ledger.forget_ahead()

    def count(self) -> bool:
        """Count the ticks and takes whose barrier is reached; return whether there were any."""
        counted = False
        for pending in self.sessions.counting(Barrier(self.ack_next, self.fail_next)):
            counted = True
            if pending.take:
                self._count_take(pending)
            else:
                self.ledger.expire(pending.session, self.sessions.clock(pending.session).counted_ms)
        return counted

    def _count_take(self, take: Pending) -> None:
        """Abandon all other sessions of the group, write the verdicts of that, and answer the new owner."""
        session = take.session
        decided_ms = self.sessions.clock(session).counted_ms
        group = self.sessions.groups[session.group]
        writers = self.ack_marks.now.sessions(session.group) | self.fail_marks.sessions(session.group)
        for former in writers | group.clocks.keys() | set(self.ledger.sessions(session.group)):
            # All others are lower, save one whose epoch was higher than any session's can be.
            if former != session:
                self.ledger.abandon(former, decided_ms)
                self.ack_marks.forget(former)
                self.fail_marks.forget(former)
                self.sessions.forget(former)
        self.outbox.settle(self.ledger.take_settled(), self.leader_epochs)
        self.outbox.write(self._answers(session, take.before_ms))
        self.outbox.report(AckerEventKind.TAKEN, self._owner_text(session.group))

    def _answers(self, session: Session, before_ms: int | None) -> list[Taken]:
        """Answer a session that owns its group now, in parts that each fit into a record.

        `before_ms` is what the former owner's clock showed; None for a restart: its answer has its own clock.
        """
        clock_ms = self.sessions.clock(session).read_ms if before_ms is None else before_ms
        runs = ((1, run, RUN_BYTES) for run in self.ledger.open_runs(session))
        rows_of_parts = in_records(2, chain(self._sources_of(session.group), runs)) or [((), ())]
        group, epoch, session_id = session
        return [
            Taken(group, session_id, epoch, session_id, "", part, len(rows_of_parts), clock_ms, *rows)
            for part, rows in enumerate(rows_of_parts)
        ]

    def _sources_of(self, group: str) -> Iterator[tuple[int, TakenSource, int]]:
        """Yield the sources of a group as rows of `in_records`."""
        for number, source in self.sessions.sources_of(group):
            end = self.ledger.watermark(number)
            row = TakenSource(number, source.topic_id, source.generation, source.from_, end)
            yield 0, row, SOURCE_BYTES + len(source.topic_id.encode())

    # -- 5. output

    @property
    def has_output(self) -> bool:
        return bool(self.ledger.settled) or bool(self.outbox)

    def take_output(self) -> StepOutput:
        """Return what the step writes and reports: canonical, each record within the wire's size limit."""
        self.outbox.settle(self.ledger.take_settled(), self.leader_epochs)
        return self.outbox.take()

    def committed(self, verdicts: Sequence[bytes]) -> None:
        """Count the records that a transaction appended to the verdict log, and its marker."""
        if verdicts:
            offset, size = self.ledger.verdict_next
            self.ledger.verdict_next = Pin(offset + len(verdicts) + 1, size + sum(map(weight, verdicts)))

    def pass_over(self, record: Record, why: str) -> None:
        """Count and report a record that a restart cannot use and does not need."""
        self.ledger.counts.undecodable_records += 1
        self.outbox.pass_over(record, why)

    def _refuse(self, group: str, asked_by: str, why: str) -> None:
        self.ledger.counts.refused_takes += 1
        self._write_refusal(group, asked_by, why)
        self.outbox.report(AckerEventKind.REFUSED, f"session {asked_by} does not get group {group}: {why}")

    def _write_refusal(self, group: str, asked_by: str, why: str) -> None:
        """Answer a session that does not get a group, and name the one that owns it; `why` is not empty.

        A refusal has one part: of more than some 12,000 sources it contains only the first.
        """
        owned_group = self.sessions.groups.get(group)
        owner = owned_group.owner if owned_group else Session(group, 0, "")
        rows_of_parts = in_records(1, self._sources_of(group)) or [((),)]
        clock_ms = self.sessions.clock(owner).read_ms
        self.outbox.write(
            [Taken(group, owner.id, owner.epoch, asked_by, why, 0, 1, clock_ms, rows_of_parts[0][0], ())]
        )

    def _owner_text(self, group: str) -> str:
        owner = self.sessions.groups[group].owner
        return f"session {owner.id} (epoch {owner.epoch}) holds group {group}"

    def _decode_init(self, record: Record) -> Event | None:
        """Do as `_decode` does, and quarantine a record of another cluster: nobody owns a group by that."""
        if difference := other_cluster(record.headers, self.cluster_id):
            self._quarantine(record, difference)
            return None
        return self._decode(record)

    def _decode_acks(self, record: Record) -> Event | None:
        """Do as `_decode` does, in the quickest way for what is mostly there."""
        if record.unreadable_names:
            return self._decode(record)
        return read_acks(record.value or b"", self._acks_header) or self._decode(record)

    def _decode(self, record: Record) -> Event | None:
        if flaw := wrong_headers(record):
            self._quarantine(record, flaw)
            return None
        try:
            return self.codec.decode(record.value)
        except CodecError as error:
            if marked_offset(record) is None:
                self._quarantine(record, str(error))
            return None

    def _quarantine(self, record: Record, why: str) -> None:
        self.ledger.counts.quarantined_records += 1
        self.outbox.quarantine(record, why)


def wrong_headers(record: Record) -> str:
    """Return why no program of ours wrote a record, whatever its value says; empty: nothing shows that."""
    names = record.unreadable_names
    return f"the name of a header is no UTF-8: {names[0]:.100}" if names else ""


def weight(value: bytes | None) -> int:
    """Return the cost of reading a record again, as the number of bytes that take as long to read."""
    return max(len(value or b""), RECORD_BYTES)


def _named(record: Acks | Fails) -> I64:
    """Return all positions that a record names, in any order, perhaps several times."""
    if isinstance(record, Fails):
        arrays = [positions(cause.positions) for cause in record.causes]
    else:
        arrays = [np.arange(run.start, run.end, dtype=np.int64) for run in record.runs + record.absent]
        arrays += [positions(record.positions), positions(record.touched)]
    return np.concatenate([np.zeros(0, np.int64), *arrays])
