"""One acker partition, pure: records of its three topics go in, records of the verdict topic come out.

The service calls these methods in one step, in this order. Rules (a) and (b)
are the orders between topics in docs/design/protocol.md, section 4:

1. `read_inits`: inits open roots; takes and ticks are queued, those of lower sessions are refused; (a)
2. `set_barrier`: what was queued gets its barrier: where contributions and fails end now; (b)
3. `apply_fails`, then `apply_acks`: FAILED goes before ABSENT, and in each sweep ABSENT before ACKED; (a)
4. `apply_reached_ticks`: takes and ticks take effect (*count*) whose barrier is reached; (b)
5. `take_output`: returns what to write, all in one transaction.

A *lane* is one query of one session, as a writer of numbered batches. Its *mark* says which records
of its last batch were applied, so that each is applied once. A *pin* is the place of a record that
a restart needs. A *flaw* is a text on what is wrong with a record; empty if nothing is.

Source: docs/design/protocol.md, sections 3, 4 and 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

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
from acker.ledger.sessions import Barrier, QueuedTick, SessionRank, Sessions
from acker.ledger.verdicts import RUN_BYTES, SOURCE_BYTES, ListRow, LossCause, split_into_records
from acker.service.bins import Bins
from acker.service.passed_over import is_mark
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

NONDETERMINISTIC: Final = "NONDETERMINISTIC"
"""The error class of a root whose bolt did something else when it ran again."""

QUESTION_EPOCH: Final = 0
"""The epoch of a take that only asks which session owns the group; sessions have higher ones."""

SWEEP_BYTES: Final = 1 << 20
"""Contributions are folded in sweeps of about this size, which stay in the processor's cache."""


_SOURCES_LIST: Final = 0
_OPEN_LIST: Final = 1
"""The numbers of the two lists of an answer to a take: its sources, and its open runs."""

RECORD_BYTES: Final = 4_096
"""Even the shortest record costs a restart some 50 microseconds, as much as reading so many bytes."""


class _AcceptedAcks(NamedTuple):
    """Contributions that are to be applied; `pin` is the place of their record in the log."""

    session: Session
    acks: Acks
    contribution: Contribution
    pin: Pin


class PartitionCore:
    """The state of one acker partition.

    Attributes:
        partition: its number; `partitions` is how many there are.
        init_next: offset of the next record of ``_ack_init`` to apply; so
            `ack_next` and `fail_next` of their topics.
        ack_bytes: what it costs to read the contributions again that were
            applied; see `read_cost_bytes`.
        ahead_inits_end: the end of ``_ack_init`` at the restore, if verdicts
            were read before the inits of their roots. Inits below this offset
            may be theirs, so the ledger keeps those verdicts until it is reached.
        ack_marks: by lane, which contributions were applied; `fail_marks`: which
            fails.
        bins: what State carries by value.
        outbox: what the present step writes and reports.
        late_counts_by_group: what came too late for a watermark, since State
            first had it.
        leader_epochs: those in which roots were emitted.
        cluster_id: empty if it is unknown.
    """

    def __init__(self, partition: int, partitions: int, limits: AckerLimits, codec: Codec[Event]) -> None:
        self.partition = partition
        self.partitions = partitions
        self.limits = limits
        self.codec = codec
        self.init_next = self.ack_next = self.fail_next = 0  # offsets
        self.ack_bytes = 0
        self.ahead_inits_end = 0
        self.ledger = Ledger()
        self.sessions = Sessions(limits.pending_ticks, limits.sources, limits.groups)
        self.ack_marks = TrailingMarks(limits.lanes)
        self.fail_marks = Marks(limits.lanes)
        self.bins = Bins()
        self.outbox = OutputBuilder(partition, codec)
        self.late_counts_by_group: dict[str, LateCounts] = {}
        self.leader_epochs = LeaderEpochs()
        self.cluster_id = UNKNOWN_CLUSTER
        self._acks_header = codec.header(Acks)  # each record of contributions begins with it

    # -- 1. inits, ticks and takes

    def read_inits(self, records: Iterable[Record]) -> None:
        """Apply records of ``_ack_init``: inits, ticks and takes."""
        for record in records:
            event = self._decode_init(record)  # None: it was quarantined, or is an operator's mark
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
        """Queue the take of a session that becomes the owner of its group, or refuse it.

        The takes of the former owner that still wait are refused, too.
        """
        # 1. what nobody may write is quarantined
        flaw = checks.wrong_take(take, record.timestamp_ms)
        if flaw:
            self._quarantine(record, flaw)
            # A flaw of which `AHEAD` is a part: the clock of the session's machine is ahead. Such a
            # session waits for an answer; who wrote garbage does not.
            if checks.AHEAD in flaw:
                self._refuse(take.group, take.session, flaw)
            return
        objection = self.sessions.objection_to(take)
        if take.partitions != self.partitions:
            objection = f"the ack topics have {self.partitions} partitions, the take says {take.partitions}"
        if objection:
            self._quarantine(record, objection)
            self._refuse(take.group, take.session, objection)
            return
        # 2. a take with epoch 0 only asks who owns the group: it is answered as a refused one is,
        # since that answer names the owner, and is not counted as refused
        session = Session(take.group, take.epoch, take.session)
        if take.epoch <= QUESTION_EPOCH:
            self._write_refusal(take.group, take.session, f"epoch {take.epoch} only asks")
            detail = f"session {take.session} asks who holds group {take.group}"
            self.outbox.report(AckerEventKind.QUERIED, detail)
            return
        # 3. of two sessions the higher one owns the group
        rank = self.sessions.rank(session, written_ms=record.timestamp_ms)
        if rank is SessionRank.LOWER:
            self._refuse(take.group, take.session, self._owner_text(take.group))
            return
        # from here on it is the owner; the former owner's takes that were not answered yet are
        # refused
        for overtaken_take in self.sessions.record_take(take):
            self._refuse(take.group, overtaken_take.session.id, self._owner_text(take.group))

    def _read_tick(self, record: Record, tick: Tick) -> None:
        """Queue a tick of the owner; one of another session is refused or quarantined."""
        session = Session(tick.group, tick.epoch, tick.session)
        flaw = checks.wrong_take(tick, record.timestamp_ms)
        if not self._reject_unless_owner(record, session, flaw, refused_count=1):
            self.sessions.record_tick(session, tick.now)

    def _read_init(self, record: Record, init: Init) -> None:
        """Open the roots that an init of a group's owner names.

        An init with a flaw is quarantined as a whole: none of its roots is opened.
        """
        # 1. check all of it before anything is opened
        session = Session(init.group, init.epoch, init.session)
        flaw = checks.wrong_init(
            init, self.partition, self.partitions, self.limits.init_roots, record.timestamp_ms
        )
        if init.partitions != self.partitions:
            flaw = f"the ack topics have {self.partitions} partitions, the init says {init.partitions}"
        root_count = sum(run.end - run.start for run in init.runs)
        if self._reject_unless_owner(record, session, flaw, refused_count=root_count):
            return
        for run in init.runs:
            objection = self.sessions.contradiction(init.group, run.source, init.topic)
            if objection:
                self._quarantine(record, objection)
                return
        gap_flaw = self._gap_flaw(init)
        if gap_flaw:
            self._quarantine(record, gap_flaw)
            return
        # 2. what all of its roots share
        grace_ms = self.sessions.record_init_clock(session, init.now)
        timeout_ms = init.timeout_ms
        if timeout_ms > 0:  # 0 or less means that these roots never time out
            timeout_ms += grace_ms
        wall_ms = checks.emission_wall(init, record.timestamp_ms)
        emission = InitEmission(session, init.topic, init.topic_id, init.now, wall_ms, timeout_ms)
        epochs = read_epochs(record.headers)
        # 3. open the runs
        for run in init.runs:
            if not self._is_in_generation(init.group, run):
                self.ledger.counts.refused += run.end - run.start
                continue
            # positions below the watermark were emitted before, perhaps in
            # another leader epoch
            first_new = max(run.start, self.ledger.watermark(run.source))
            if first_new < run.end:
                leader_epoch = epochs.at(run.source, first_new)
                self.leader_epochs.add(EpochStep(run.source, first_new, leader_epoch))
            # contributions that were read before this init do not count for its roots
            self.ledger.open_run(emission, run, ack_from=self.ack_next)

    def _is_in_generation(self, group: str, run: SourceRun) -> bool:
        """Return whether a run lies in the present generation of a source of its group."""
        source_generation = self.sessions.sources.get(run.source)
        if source_generation is None or source_generation.group != group:
            return False
        # an empty run has none: its start stands for it
        last_position = max(run.start, run.end - 1)
        return (
            generation_of(run.start) == source_generation.generation
            and generation_of(last_position) == source_generation.generation
        )

    def _gap_flaw(self, init: Init) -> str:
        """Return a text on positions that an init would leave out for ever; empty: it leaves out none.

        A spout initialises without a gap what it reads. Positions that an
        init leaves out count as initialised: no spout would read them, and
        they would get no verdict. A gap counts if it has a whole acker block
        (65,536 positions) of this acker partition. A smaller one may be of other
        partitions alone: their blocks lie between two of its blocks.
        """
        end_by_source: dict[int, int] = {}  # the first position behind the runs so far
        for run in init.runs:
            if not self._is_in_generation(init.group, run):
                # its roots are refused later, so it initialises nothing and leaves nothing out
                continue
            # a source is read from the position that its take names
            source_start = self.sessions.sources[run.source].from_
            end_before = end_by_source.get(run.source, self.ledger.watermark(run.source))
            # the first position that the run may begin at without a gap
            first_allowed = max(end_before, source_start)
            left_out_start = checks.start_of_left_out_block(
                run.source, first_allowed, run.start, self.partition, self.partitions
            )
            if left_out_start is not None:
                positions_text = f"from {left_out_start} on, before {run.start}"
                return f"it leaves out positions of source {run.source} {positions_text}"
            end_by_source[run.source] = max(first_allowed, run.end)
        return ""

    def _reject_unless_owner(
        self, record: Record, session: Session, flaw: str, *, refused_count: int
    ) -> bool:
        """Reject a record with a flaw, or of a session that does not own its group.

        Returns whether it was. `flaw` says what is wrong with the record; empty:
        nothing. A session below the owner may not know yet that it lost the group:
        `refused_count` ticks or roots are counted as refused. Any other record
        that is rejected is quarantined.
        """
        if flaw:
            self._quarantine(record, flaw)
            return True
        rank = self.sessions.rank(session)
        if rank is SessionRank.LOWER:
            self.ledger.counts.refused += refused_count
        elif rank is not SessionRank.OWNER:  # higher than the owner, or nobody owns the group
            self._quarantine(record, "its session has not taken the group")
        return rank is not SessionRank.OWNER

    # -- 2. barriers

    def set_barrier(self, ack_end: int, fail_end: int) -> None:
        """Set up to which offsets acks and fails are applied before the waiting ticks and takes
        count.

        These offsets are their *barrier*: the ends of ``_ack_ack`` and ``_ack_fail``,
        fetched after the last `read_inits`. Ticks and takes that have a barrier
        keep it.
        """
        self.sessions.set_barrier(Barrier(ack_end, fail_end))

    # -- 3. fails and contributions

    def apply_fails(self, records: Iterable[Record]) -> None:
        """Apply records of ``_ack_fail``."""
        for record in records:
            event = self._decode(record)  # None: it was quarantined, or is an operator's mark
            if isinstance(event, Fails):
                self._apply_fails(record, event)
            elif event is not None:
                self._quarantine(record, f"{type(event).__name__} does not belong into this topic")
            self.fail_next = record.offset + 1

    def _apply_fails(self, record: Record, fails: Fails) -> None:
        """Fail the roots that a record names, with their causes.

        A record with a flaw is quarantined, and one that was applied before is not
        applied again.
        """
        flaw = checks.wrong_fails(fails, self.partition, self.partitions)
        flaw = flaw or self.sessions.contradiction(fails.group, fails.source)
        if flaw:
            self._quarantine(record, flaw)
            return
        session = Session(fails.group, fails.epoch, fails.session)
        seen = self._compare_and_mark_fails(record, session, fails)
        if seen is not Seen.NEW:
            self._record_why_not_applied(seen, record, session, fails)
            return
        decided_at_ms = self.sessions.clock(session).counted_ms
        self.outbox.keep_stacks(read_stacks(record.headers))
        self._forward_passed_calls(record)
        for cause in fails.causes:
            loss_cause = LossCause(Verdict.FAILED, cause.operator, cause.error, cause.message, decided_at_ms)
            failed_positions = distinct(positions(cause.positions))
            self.ledger.fail(session, fails.source, failed_positions, loss_cause)

    def apply_acks(self, records: Iterable[Record]) -> None:
        """Apply records of ``_ack_ack``, so many at a time as have `SWEEP_BYTES` together: a
        *sweep*.
        """
        sweep: list[Record] = []
        sweep_bytes = 0
        for record in records:
            sweep.append(record)
            sweep_bytes += len(record.value or b"")
            if sweep_bytes >= SWEEP_BYTES:
                self._apply_sweep(sweep)
                sweep, sweep_bytes = [], 0
        self._apply_sweep(sweep)

    def _apply_sweep(self, records: Sequence[Record]) -> None:
        """Apply a sweep, some records of contributions, in three rounds over all of them.

        The rounds are fails of repeated records, then absent roots, then XOR values.
        Each root gets its first verdict only: so FAILED goes before ABSENT, and
        ABSENT before ACKED.
        """
        # 1. accept what is new; this fails the roots of repeats with other content
        accepted_records: list[_AcceptedAcks] = []
        for record in records:
            event = self._decode_acks(record)
            if isinstance(event, Acks):
                session = Session(event.group, event.epoch, event.session)
                contribution = self._unpack_and_mark(record, session, event)
                # None: it was quarantined, or was applied before
                if contribution is not None:
                    # where a restart finds the record: its offset, and the bytes to read before it
                    pin = Pin(record.offset, self.ack_bytes)
                    accepted_records.append(_AcceptedAcks(session, event, contribution, pin))
                    # headers about late rows and about calls that passed
                    self._forward_notes(record, session)
            # None: it cannot be decoded, and `_decode_acks` has seen to it
            elif event is not None:
                self._quarantine(record, f"{type(event).__name__} does not belong into this topic")
            # of every record, also one that is not applied
            self.ack_bytes += read_cost_bytes(record.value)
            self.ack_next = record.offset + 1
        # 2. settle the roots that the records call absent
        for session, acks, _contribution, _pin in accepted_records:
            if acks.absent:
                self.ledger.settle_absent(session, acks.source, acks.absent)
        # 3. fold the values, which settles what is complete; then move deadlines of what stays open
        for session, acks, contribution, pin in accepted_records:
            self.ledger.fold(session, contribution, pin)
            if acks.touched:
                touched_positions = distinct(positions(acks.touched))
                self.ledger.touch(session, acks.source, touched_positions, acks.touched_at, pin)

    def _forward_notes(self, record: Record, session: Session) -> None:
        """Forward notes in the headers of a record of contributions to the verdict log.

        It also counts late rows. One note says which rows and roots Spark's event-time
        watermark dropped. It counts if it is of the group of its `session`, and
        the session may have roots. Another note says which bolt calls passed when
        they were made again.
        """
        self._forward_passed_calls(record)
        late_note = read_too_late(record.headers) if record.headers else None
        if late_note is None or late_note.group != session.group:
            return
        # it never took the group, or lost it: it has no roots
        if not self.sessions.has_clock(session):
            return
        # a note whose time lies ahead would stay the newest one of its group for ever
        if not checks.wrong_clock(late_note.wall, record.timestamp_ms):
            self.outbox.add_too_late(late_note)
            counts = self.late_counts_by_group.get(late_note.group, LateCounts())
            self.late_counts_by_group[late_note.group] = counts.plus(late_note)

    def _forward_passed_calls(self, record: Record) -> None:
        """Forward the header that says which bolt calls passed when they were made again."""
        passed_calls = read_passed_calls(record.headers) if record.headers else None
        if passed_calls is None:
            return
        for header in passed_calls_header(*passed_calls):  # one, or none
            self.outbox.add_note(header)

    def unpack_contributions(self, acks: Acks, written_ms: int) -> tuple[Contribution | None, str]:
        """Check and unpack a record of contributions.

        Returns them and "", or None and what is wrong. `written_ms` is the
        time of the record, wall time.
        """
        flaw = checks.wrong_acks(acks, self.partition, self.partitions)
        flaw = flaw or checks.wrong_touch(acks, written_ms)
        flaw = flaw or self.sessions.contradiction(acks.group, acks.source)
        if flaw:
            return None, flaw
        contribution = Contribution(acks)
        if contribution.is_outside:  # it has positions of another block than it says
            return None, checks.OUTSIDE
        return contribution, ""

    def _unpack_and_mark(self, record: Record, session: Session, acks: Acks) -> Contribution | None:
        """Return the contributions of a record, and mark it as applied.

        None: they must not be applied. A record with a flaw is quarantined and not marked. What
        happens to one that is not NEW, such as a repeat, `_record_why_not_applied` says.
        """
        contribution, flaw = self.unpack_contributions(acks, record.timestamp_ms)
        if contribution is None:  # only then is `flaw` not empty
            self._quarantine(record, flaw)
            return None
        seen = self.compare_and_mark_acks(record, session, acks)
        if seen is not Seen.NEW:
            self._record_why_not_applied(seen, record, session, acks)
            return None
        return contribution

    def _record_why_not_applied(
        self, seen: Seen, record: Record, session: Session, event: Acks | Fails
    ) -> None:
        """Count, fail or quarantine a record that is not applied, by what its lane's mark shows
        (`seen`).

        A repeat is counted, one with other content fails its roots, and a record
        for whose lane there is no room is quarantined.
        """
        if seen is Seen.NO_ROOM:
            self._quarantine(record, f"more than {self.limits.lanes} lanes")
        elif seen is Seen.REPEATED:
            self.ledger.counts.repeated_records += 1
        elif seen is Seen.DIFFERENT:
            self._fail_repeated(session, event)

    def compare_and_mark_acks(self, record: Record, session: Session, acks: Acks) -> Seen:
        """Return whether a record of contributions was applied before.

        It is marked as applied if it is NEW. The mark of its lane says which
        records of the lane's last batch were applied, each by its CRC-32.
        """
        # a session that lost its group, or never took it here, leaves no mark: the ledger has no
        # open root of it
        if not self.sessions.has_clock(session):
            return Seen.NEW
        content = Content(acks.seq, acks.source, acks.block, isal_zlib.crc32(record.value or b""))
        return self.ack_marks.compare_and_mark(record.offset, SessionLane(session, acks.lane), content)

    def _compare_and_mark_fails(self, record: Record, session: Session, fails: Fails) -> Seen:
        """Return whether a record of fails was applied before; mark it as applied if it is NEW.

        The mark of its lane says which records of the lane's last batch were
        applied, each by its CRC-32.
        """
        # a session that lost its group, or never took it here, leaves no mark: the ledger has no
        # open root of it
        if not self.sessions.has_clock(session):
            return Seen.NEW
        content = Content(fails.seq, fails.source, fails.block, isal_zlib.crc32(record.value or b""))
        return self.fail_marks.compare_and_mark(SessionLane(session, fails.lane), content)

    def _fail_repeated(self, session: Session, event: Acks | Fails) -> None:
        """Fail the roots of a repeat with other content: a bolt did something else when it reran.

        What was applied of it before cannot be taken back, so no value of these roots is right.
        """
        self.ledger.counts.nondeterministic_records += 1
        message = f"lane {event.lane}, batch {event.seq}: written again with other content"
        block_text = f"source {event.source}, block {event.block}"
        self.outbox.report(AckerEventKind.NONDETERMINISTIC, f"{message}, {block_text}")
        loss_cause = LossCause(
            Verdict.FAILED,
            operator="",
            error=NONDETERMINISTIC,
            message=message,
            decided_at_ms=self.sessions.clock(session).counted_ms,
        )
        self.ledger.fail(session, event.source, distinct(_positions_in(event)), loss_cause)

    # -- 4. ticks and takes

    def move_next_offsets(self, init_next: int, fail_next: int, ack_next: int) -> None:
        """Move the next offsets of the three topics to those up to which they were read.

        They never go back. These may lie behind the last record that was applied: behind
        Kafka's markers of transactions, and aborted records, which no reader gets.
        """
        self.init_next = max(self.init_next, init_next)
        self.fail_next = max(self.fail_next, fail_next)
        self.ack_next = max(self.ack_next, ack_next)
        # A restart may have read verdicts before the inits of their roots. The ledger keeps these
        # verdicts until the inits are read that were in the log at the restart.
        if self.ledger.first_pin_without_init and self.init_next >= self.ahead_inits_end:
            self.ledger.forget_verdicts_ahead()

    def apply_reached_ticks(self) -> bool:
        """Apply the queued ticks and takes whose barrier is reached; return whether there were any.

        The barrier is reached when all acks and fails are applied that were in the log when the
        tick or take was read. A tick expires roots; a take abandons the roots of other sessions,
        and is answered.
        """
        has_applied = False
        for queued in self.sessions.pop_reached(Barrier(self.ack_next, self.fail_next)):
            has_applied = True
            if queued.is_take:
                self._complete_takeover(queued)
            else:
                clock = self.sessions.clock(queued.session)
                self.ledger.expire(queued.session, clock.counted_ms)
        return has_applied

    def _complete_takeover(self, take: QueuedTick) -> None:
        """Abandon the roots of all other sessions of a group, forget these sessions, and answer the
        session that sent the take.
        """
        session = take.session
        # by the new owner's clock: the clocks of the others are forgotten below
        decided_at_ms = self.sessions.clock(session).counted_ms
        group = self.sessions.groups[session.group]
        # a session may have marks, a clock or open roots without the others
        acked_sessions = self.ack_marks.latest.sessions(session.group)
        sessions_with_marks = acked_sessions | self.fail_marks.sessions(session.group)
        sessions_with_roots = set(self.ledger.sessions(session.group))
        for former in sessions_with_marks | group.clocks.keys() | sessions_with_roots:
            # The others are lower sessions. One may be higher: a former owner
            # whose epoch no session can have, see `Sessions.rank`.
            if former != session:
                self.ledger.abandon(former, decided_at_ms)
                self.ack_marks.forget(former)
                self.fail_marks.forget(former)
                self.sessions.forget(former)
        # in this order: the new owner reads the verdicts of former roots
        # before its answer
        self.outbox.add_verdicts(self.ledger.take_settled(), self.leader_epochs)
        self.outbox.add_records(self._answers(session, take.former_clock_ms))
        self.outbox.report(AckerEventKind.TAKEN, self._owner_text(session.group))

    def _answers(self, session: Session, former_clock_ms: int | None) -> list[Taken]:
        """Return the answer to a session that owns its group now, in parts that each fit into a record.

        `former_clock_ms` is what the clock of the former owner showed. None: the
        session owned the group already and has restarted. Then the answer has the
        session's own clock.
        """
        own_clock_ms = self.sessions.clock(session).read_ms
        clock_ms = own_clock_ms if former_clock_ms is None else former_clock_ms
        run_rows = ((_OPEN_LIST, run, RUN_BYTES) for run in self.ledger.open_runs(session))
        source_rows = self._source_rows(session.group)
        # 2: each part has two lists, its sources and its open runs
        parts = split_into_records(2, chain(source_rows, run_rows))
        if not parts:  # a group without sources gets an answer, too
            parts = [((), ())]
        answers: list[Taken] = []
        for part_number, (sources, open_runs) in enumerate(parts):
            answer = Taken(
                group=session.group,
                session=session.id,
                epoch=session.epoch,
                asked_by=session.id,  # the owner has sent the take itself
                refused="",  # it is no refusal
                part=part_number,
                parts=len(parts),
                clock=clock_ms,
                sources=sources,
                open=open_runs,
            )
            answers.append(answer)
        return answers

    def _source_rows(self, group: str) -> Iterator[ListRow]:
        """Yield the sources of a group, as rows of `split_into_records`."""
        for number, source in self.sessions.sources_of(group):
            watermark = self.ledger.watermark(number)
            taken_source = TakenSource(number, source.topic_id, source.generation, source.from_, watermark)
            yield _SOURCES_LIST, taken_source, SOURCE_BYTES + len(source.topic_id.encode())

    # -- 5. output

    @property
    def has_output(self) -> bool:
        """Whether `take_output` would return anything."""
        return bool(self.ledger.settled) or bool(self.outbox)

    def take_output(self) -> StepOutput:
        """Return what the step writes and reports: canonical, each record within the wire's size limit."""
        self.outbox.add_verdicts(self.ledger.take_settled(), self.leader_epochs)
        return self.outbox.take()

    def move_verdict_end(self, verdicts: Sequence[bytes]) -> None:
        """Move the end of the verdict log behind what a committed transaction appended.

        `verdicts` are its records, encoded. Each record takes one offset, and Kafka's marker of
        the transaction one more.
        """
        if not verdicts:  # nothing was appended, not even a marker
            return
        offset, size_bytes = self.ledger.verdict_end_pin
        added_bytes = sum(read_cost_bytes(verdict) for verdict in verdicts)
        self.ledger.verdict_end_pin = Pin(offset + len(verdicts) + 1, size_bytes + added_bytes)

    def report_passed_over(self, record: Record, why: str) -> None:
        """Count and report a record that a restart cannot use and does not need."""
        self.ledger.counts.undecodable_records += 1
        self.outbox.report_passed_over(record, why)

    def _refuse(self, group: str, asked_by: str, why: str) -> None:
        """Count, answer and report that a session does not get a group."""
        self.ledger.counts.refused_takes += 1
        self._write_refusal(group, asked_by, why)
        self.outbox.report(AckerEventKind.REFUSED, f"session {asked_by} does not get group {group}: {why}")

    def _write_refusal(self, group: str, asked_by: str, why: str) -> None:
        """Answer a session that does not get a group, and name the one that owns it; `why` is not empty.

        A refusal has one part: of more than some 12,000 sources it contains
        only the first.
        """
        owned_group = self.sessions.groups.get(group)
        owner = owned_group.owner if owned_group else Session(group, epoch=0, id="")
        # each part fits into a record and has one list, the sources; a group without any has no
        # part
        parts = split_into_records(1, self._source_rows(group)) or [((),)]
        (sources,) = parts[0]
        clock_ms = self.sessions.clock(owner).read_ms  # 0 where nobody owns the group
        refusal = Taken(
            group=group,
            session=owner.id,
            epoch=owner.epoch,
            asked_by=asked_by,
            refused=why,
            part=0,
            parts=1,
            clock=clock_ms,
            sources=sources,
            open=(),
        )
        self.outbox.add_records([refusal])

    def _owner_text(self, group: str) -> str:
        """Return a sentence on who owns a group, for messages."""
        owner = self.sessions.groups[group].owner
        return f"session {owner.id} (epoch {owner.epoch}) holds group {group}"

    def _decode_init(self, record: Record) -> Event | None:
        """Decode a record of ``_ack_init``; return None for one that must not be applied.

        Beside what `_decode` quarantines, a record of another cluster is
        quarantined: it gives nobody a group.
        """
        difference = other_cluster(record.headers, self.cluster_id)
        if difference:
            self._quarantine(record, difference)
            return None
        return self._decode(record)

    def _decode_acks(self, record: Record) -> Event | None:
        """Decode as `_decode` does; a plain record of contributions, as most are, in the quickest way."""
        if record.unreadable_names:  # `_decode` quarantines it
            return self._decode(record)
        acks = read_acks(record.value or b"", self._acks_header)
        return acks or self._decode(record)  # None: what only the slower decoder reads, or refuses

    def _decode(self, record: Record) -> Event | None:
        """Decode a record; one that cannot be decoded is quarantined, and None is returned.

        An operator's mark cannot be decoded either, and is not quarantined: see
        `acker.service.passed_over`.
        """
        flaw = wrong_headers(record)
        if flaw:
            self._quarantine(record, flaw)
            return None
        try:
            return self.codec.decode(record.value)
        except CodecError as error:
            if not is_mark(record):
                self._quarantine(record, str(error))
            return None

    def _quarantine(self, record: Record, why: str) -> None:
        """Count a record that cannot be applied, and add it to those that are copied to the quarantine."""
        self.ledger.counts.quarantined_records += 1
        self.outbox.add_quarantined(record, why)


def wrong_headers(record: Record) -> str:
    """Return why no program of ours wrote a record, whatever its value says; empty: nothing shows that."""
    names = record.unreadable_names
    if not names:
        return ""
    return f"the name of a header is no UTF-8: {names[0]:.100}"


def read_cost_bytes(value: bytes | None) -> int:
    """Return the cost of reading a record again, as the number of bytes that take as long to read."""
    return max(len(value or b""), RECORD_BYTES)


def _positions_in(event: Acks | Fails) -> I64:
    """Return all positions that a record names, in any order, perhaps several times."""
    arrays = [np.zeros(0, np.int64)]  # there may be no other, and `concatenate` needs one
    if isinstance(event, Fails):
        arrays += [positions(cause.positions) for cause in event.causes]
    else:
        arrays += [np.arange(run.start, run.end, dtype=np.int64) for run in event.runs + event.absent]
        arrays += [positions(event.positions), positions(event.touched)]
    return np.concatenate(arrays)
